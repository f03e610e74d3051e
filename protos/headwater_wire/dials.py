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


def targets_of(addresses: str) -> list[str]:
    """Several addresses as one target each: `ipv4:10.0.0.4:7070,10.0.0.5:7070`, or names without a scheme."""
    if addresses.startswith(("unix:", "dns:")):
        # In a path a comma is a character, and behind a name server stands one name.
        return [addresses]
    scheme = next((each for each in ("ipv4:", "ipv6:") if addresses.startswith(each)), "")
    return [scheme + each.removeprefix(scheme) for each in addresses.split(",") if each] or [addresses]
