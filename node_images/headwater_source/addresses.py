"""The addresses at which a source may begin."""

from __future__ import annotations

_SCHEMES = ("ipv4:", "ipv6:")
# Of these a comma is part of the name.
_WHOLE = ("unix:", "unix-abstract:", "dns:")


def split_addresses(text: str) -> list[str]:
    """Each address of a list, as gRPC takes it.

    The list is `ipv4:10.0.0.4:7070,10.0.0.5:7070`, or names with commas between them. gRPC takes a list of IP
    addresses for one target, and compares a certificate with the whole of it.
    """
    if text.startswith(_WHOLE):
        return [text]
    found, scheme = [], ""
    for part in map(str.strip, text.split(",")):
        own = next((each for each in _SCHEMES if part.startswith(each)), "")
        scheme = own or scheme
        if part:
            found.append(part if own else scheme + part)
    return list(dict.fromkeys(found)) or [text]
