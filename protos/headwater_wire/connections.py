"""How many connections a server admits: so many that files can still be opened beside them.

The core closes what is beyond the bound without a word, so now and then is looked how many there are.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections import Counter
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from headwater_wire.offences import Offence, Offences

MOST = 65_536
# Descriptors that are kept for everything else: segments, results, streams upwards, the HTTP endpoint.
RESERVE = 512
SECONDS = 5.0
# Where the kernel lists connections, and the state of those that are established.
_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_ESTABLISHED = "01"


class Connections:
    """Those of one server."""

    def __init__(self, offences: Offences, most: int = MOST) -> None:
        """Lets this process have as many descriptors as it may."""
        self._offences = offences
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = most + RESERVE if hard == resource.RLIM_INFINITY else min(most + RESERVE, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            # Where that is not allowed, there are as many as before.
            with suppress(OSError, ValueError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
                soft = wanted
        held = most if soft == resource.RLIM_INFINITY else soft - min(RESERVE, soft // 2)
        self.bound = min(most, held)

    async def watch(self, port: int) -> None:
        """Tell of it when nearly all are taken; for as long as the server runs."""
        while True:
            await asyncio.sleep(SECONDS)
            hosts = await asyncio.to_thread(self._hosts, port)
            count = hosts.total()
            if count >= self.bound - self.bound // 10:
                host, most = hosts.most_common(1)[0]
                problem = f"{count} of {self.bound} connections are taken, {most} of them by {host}; "
                problem += "stop it, or raise the limit of open files (ulimit -n)"
                self._offences.note(Offence.CONNECTIONS, host, problem)

    def _hosts(self, port: int) -> Counter[str]:
        """Who is connected, if that may be many."""
        found: Counter[str] = Counter()
        # Elsewhere than on Linux nobody can be named.
        with suppress(OSError):
            if 2 * len(os.listdir("/proc/self/fd")) < self.bound:
                return found
            for table in _TABLES:
                for line in table.read_text().splitlines()[1:]:
                    _, here, there, state, *_ = line.split()
                    if state == _ESTABLISHED and int(here.rpartition(":")[2], 16) == port:
                        found[_address(there.rpartition(":")[0])] += 1
        return found


def _address(said: str) -> str:
    """The kernel writes words of four bytes, each the wrong way round."""
    data = bytes.fromhex(said)
    found = ip_address(b"".join(data[place : place + 4][::-1] for place in range(0, len(data), 4)))
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(mapped or found)
