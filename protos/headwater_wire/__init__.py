"""What nodes say to each other: messages, and the codec between them and the values of the core; and what
every program has around that: streams, certificates, logs, an endpoint to be looked at.

Nothing here decides what is counted.
"""
