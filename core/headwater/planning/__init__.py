"""How many nodes, and who sends to whom: a tree that cannot be overrun, and what changes when things change.

Nothing here knows of processes, pods or clocks: plans are made of what is given, and times are arguments.
"""
