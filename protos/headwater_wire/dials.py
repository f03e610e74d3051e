"""Which connection the channels of this process share.

gRPC lets all channels of one process to one address share a connection, and keeps it as long as one of them
is open. A connection that leads to nobody, or to a stranger who has the address of somebody that is gone,
would so be kept alive by those who try it in turn. Each number stands for a connection of its own.
"""

from __future__ import annotations


class Dials:
    """By address, the number of the connection that is to be used next."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, address: str) -> int:
        return self._numbers.get(address, 0)

    def renew(self, address: str, number: int) -> None:
        """The connection of this number is of no use: whoever comes next makes another one, once for all."""
        if self.number(address) == number:
            self._numbers[address] = number + 1
