"""The root: a log in, a pure function, an outbox out, and sinks that read it.

This package owns the root's files and sockets and decides nothing: what a record means, which batch fits
and when a window closes is said in `headwater`. It acknowledges nothing before the log has committed it,
it reads no clock for anything that shapes a result, and it imports neither node nor command line.
"""
