"""The program of a child or intermediate node: a machine, a clock and an exchange.

It decides nothing: what is sent, kept or dropped is the machine's business.
"""
