"""What nodes say to each other: messages, and the codec between them and the values of the core.

Nothing here opens a socket, keeps state or decides anything.
"""
