"""The real machines of sources, nodes and root on a simulated network, clock and disk.

A seed is a whole run: a tree, queries, events and faults. The same seed is the same run, byte for byte.
"""
