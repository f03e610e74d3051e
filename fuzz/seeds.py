"""Makes the corpus anew from what real parties say and write: `python -m fuzz.seeds`.

Inputs that the fuzzer has found stay: they have names of their own.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.parties import LATENESS, QUERIES, Disk, batches, root_machine
from fuzz.targets import SNAPSHOTS, chunks, joined
from headwater.changes import Change
from headwater.events import Batch
from headwater.machines.messages import (
    Ask,
    Columns,
    Commit,
    Delivery,
    Echo,
    Hello,
    Leave,
    Message,
    Probe,
    Register,
    Registered,
    Resync,
    Silent,
    Standing,
    Stream,
    Tell,
)
from headwater.machines.records import Began, Joined, Planned, Rate, Specified, Started
from headwater.machines.records import Record as Entry
from headwater.machines.root import RootMachine
from headwater_root.log import Log
from headwater_wire import records
from headwater_wire.messages import Codec
from headwater_wire.v1 import tree_pb2 as pb

CORPUS = Path(__file__).parent / "corpus"
EVENTS: dict[str, list[list[Any]]] = {
    "a": [
        [(1, None, None, "S"), (2, "k", 1.0, None), (30, "l", 2.0, None), (31, None, None, "E")],
        [(50, None, None, "S"), (49, "k", 3.0, None), (70, "k", 1.0, None), (500, None, None, "E")],
    ],
    "b": [
        [(3, "k", 4.0, "S"), (12, "k", 0.5, None), (11, "m", 2.5, None), (33, None, None, None)],
        [(52, "m", 6.0, None), (51, "k", 7.0, "E"), (75, "l", float("nan"), None), (600, None, None, None)],
    ],
}
CODEC = Codec()


def said(role: int, to: str, *spoken: tuple[str, Message]) -> bytes:
    """An input of `messages`."""
    pieces = [CODEC.encode(sender, to, each).SerializeToString(deterministic=True) for sender, each in spoken]
    return bytes([role]) + joined(pieces)


def messages() -> dict[str, bytes]:
    above = root_machine()
    prefixes = {name: source.prefix for name, source in above.engine.sources.items()}
    made = batches(prefixes, EVENTS)
    stream, first, *_ = Stream("n", 1, 1), *prefixes
    deliveries = [("n", Delivery(stream, str(place), 0, each)) for place, each in enumerate(made)]
    probe = Probe(stream, "p", 0, dict(prefixes), tuple(prefixes))
    change = Change("add", QUERIES[1], 1_000, 1)
    standings: dict[str, Standing | None] = {
        name: Standing(prefix, LATENESS, "") for name, prefix in prefixes.items()
    }
    columns = [
        (
            source,
            Columns(
                Stream(source, 0, 1),
                str(part),
                Batch.from_records(name, 4 * part + 1, given),
                f"opening {source}",
            ),
        )
        for part in range(2)
        for (name, source) in zip(prefixes, EVENTS, strict=True)
        for given in [EVENTS[source][part]]
    ]
    source_probe = Probe(Stream("a", 0, 1), "p", 0, {first: replace(prefixes[first], position=3)}, (first,))
    found = {
        "root-deliveries": said(0, "root", *deliveries),
        "root-hello": said(0, "root", ("c", Hello("c", "spool", "o", 0, 0, 7, via="n"))),
        "root-register": said(0, "root", ("m", Register("m", "t", False, "h:1")), ("n", Leave("n", 1))),
        "root-questions": said(
            0,
            "root",
            ("n", probe),
            ("n", Ask(stream, 0, tuple(prefixes), 0)),
            ("n", Silent("n", 1, first, prefixes[first])),
        ),
        "middle-deliveries": said(1, "i", *deliveries, ("n", probe), ("n", Ask(stream, 0, (first, "z"), 0))),
        "child-columns": said(2, "i", *columns),
        "child-questions": said(
            2, "i", ("a", Hello("a", "spool a", "opening a", 0, 0, 5)), ("a", source_probe)
        ),
        "above": said(
            2,
            "i",
            ("x", Tell(stream, 0, standings, (change,))),
            ("x", Resync(stream, "1", 0, standings, (change,))),
            ("x", Commit(stream, {first: 3}, 10, (change,), Echo(1, "n0", 4), (0, 1))),
            ("x", Registered("i", "t", 1, tuple(QUERIES[:2]), (change,), (first,))),
        ),
    }
    for number, machine_batches in enumerate(_parts(made)):
        found[f"root-part-{number}"] = said(0, "root", ("n", machine_batches))
    return found


def _parts(made: list[Any]) -> list[Message]:
    """Batches with one group each, small enough to be changed everywhere."""
    found: list[Message] = []
    for group, part in made[0].parts.items():
        found.append(Delivery(Stream("n", 1, 1), "x", 0, replace(made[0], parts={group: part}, events=[])))
    return found


def log_pieces() -> dict[str, bytes]:
    """Logs as a root leaves them, with and without a torn end."""
    entries = [
        Entry(Began(1, "x", 2), None, 0),
        Entry(Started(), None, 0),
        Entry(Joined("n", "t", 1, True, "h:1"), 5, 0),
        Entry(Specified(3, "d", (Planned("n", "root", 2.5),), (Rate("hall", 7, 0.5),), 4, "uid"), 5, 0),
    ]
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with Log.open(directory) as opened:
            opened.append([records.encode(each) for each in entries])
            opened.sync()
        one = _files(directory)
        with Log.open(directory) as opened:
            opened.roll(b"")
            opened.append([b"x" * 20, b""])
            opened.sync()
        two = _files(directory)
    torn = [*one[:2], one[2][:-7]]
    unproven = [one[0], b"", one[2]]
    return {
        "one": joined(one),
        "two": joined(two),
        "torn": joined(torn),
        "unproven": joined(unproven),
        "epoch": joined([b"9" * 5_000 + b" x\n", b""]),
        "late": joined([b"9999999999 x\n", *two[1:]]),
    }


def _files(directory: Path) -> list[bytes]:
    held = sorted(path for path in directory.glob("*.log"))
    return [
        # Its word is drawn at every opening: here it is always the same.
        (directory / "epoch").read_bytes().split()[0] + b" 0123456789abcdef\n",
        (directory / "committed").read_bytes(),
        *(path.read_bytes() for path in held),
    ]


def snapshots() -> dict[str, bytes]:
    machine = root_machine()
    small = RootMachine(QUERIES[1:2], machine.settings, Disk(), lambda: "n", lambda _, found: None)
    return {
        "state": SNAPSHOTS.encode((small.state, {})),
        "plain": SNAPSHOTS.encode(({"a": [1, 2.5]}, {0: 3})),
    }


def outboxes() -> dict[str, bytes]:
    row = {"id": "q/1///0", "query": "q", "incarnation": 1, "site": "", "key": None, "start": 0, "end": 10}
    row |= {"count": 2, "values": {"sum": 3.0, "max": "NaN", "top(2)": [1, "Infinity"]}, "ordinal": None}
    line = json.dumps(row).encode() + b"\n"
    return {
        "two": joined([b"0\n", line * 2, line]),
        "trimmed": joined([b"1\n", line]),
        "digits": joined([b"9" * 5_000]),
        "torn": joined([b"", line + line[:30]]),
        "nested": joined([b"", b"[" * 5_000]),
        "number": joined([b"", b'{"values": 1}\n', b"[]\n", b"\xff\n", b"7\n"]),
    }


def main() -> None:
    conversations = messages()
    spoken = [piece for data in conversations.values() for piece in chunks(data[1:])]
    nested = pb.Tell(changes=[pb.Change(kind=pb.Change.KIND_ADD, query="[" * 5_000)])
    envelopes = {f"said-{number:02}": piece for number, piece in enumerate(dict.fromkeys(spoken))}
    envelopes["nested-query"] = pb.Envelope(sender="x", to="i", tell=nested).SerializeToString()
    made = {
        "decoder": envelopes,
        "messages": conversations,
        "log": log_pieces(),
        "raw_log": log_pieces(),
        "snapshot": snapshots(),
        "outbox": outboxes(),
    }
    for target, inputs in made.items():
        folder = CORPUS / target
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
