"""For how long an input has given nothing."""

from __future__ import annotations

import os
import threading
import time

from headwater_source.readers.arrivals import Arrivals
from tests.patience import PATIENCE


def test_the_silence_grows_while_the_reader_waits_and_ends_with_bytes() -> None:
    out, into = os.pipe()
    arrivals = Arrivals(out)
    assert arrivals.silence == 0.0
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(arrivals.read(100)))
    reader.start()
    deadline = time.monotonic() + PATIENCE
    while arrivals.silence <= 0.05:
        assert time.monotonic() < deadline
    os.write(into, b"bytes")
    reader.join(PATIENCE)
    assert found == [b"bytes"]
    assert arrivals.silence == 0.0
    os.close(out)
    os.close(into)


def test_bytes_that_the_reader_has_not_seen_yet_are_no_silence() -> None:
    """The process was stopped while its reader waited, and the pipe was filled meanwhile."""
    out, into = os.pipe()
    arrivals = Arrivals(out)
    arrivals._since = time.monotonic() - 2.5
    assert arrivals.silence >= 2.5
    os.write(into, b"bytes")
    assert arrivals.silence == 0.0
    os.read(out, 100)
    os.close(into)
    # The end is no news.
    assert arrivals.silence >= 2.5
    os.close(out)
