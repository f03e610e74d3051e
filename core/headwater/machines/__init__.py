"""The parties of the delivery protocol: source, child, intermediate and root, as machines that take a
message and the time and give messages.

No machine reads a clock, draws a number, opens a socket or a file: whoever runs it does, so that the
simulator, the tests and production run the same code. A machine keeps its state in itself and is
stepped by one caller.
"""
