"""A source: what numbers events, keeps them on disk and sends them until the root has counted them.

It may read disks, clocks and sockets; it decides nothing about a window. Programs use `Source`.
"""

from headwater_source.source import Source

__all__ = ["Source"]
