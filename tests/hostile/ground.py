"""A tree of real processes that is attacked: root, intermediate `mid`, child `leaf`, and a source that
behaves and streams all the while. Whoever attacks is in the process of the test."""

from __future__ import annotations

import json
import queue
import re
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

from headwater.topology import topology_of
from headwater_cli.feeds import Kept, beat
from headwater_cli.verify import differing
from headwater_source.columns import Events
from headwater_wire.credentials import Credentials
from headwater_wire.messages import PROTOCOL
from headwater_wire.v1 import control_pb2, control_pb2_grpc, events_pb2
from headwater_wire.v1 import tree_pb2 as pb
from tests.certificates import Authority
from tests.hostile import steady
from tests.programs import Program, until
from tests.tree.processes import QUERIES, document

ROOT = Path(__file__).parents[2]
LINK = "/headwater.v1.Tree/Link"
# What a stream may take until it has ended or answered, in seconds: nobody waits for so long.
PATIENCE = 120.0
# How much an attack may leave behind in a process, in bytes.
GROWTH = 96 << 20
# What one attack comes to more than once: a client tries again by itself, or is told so each time.
REPEATED = ("handshake", "slow", "sequence", "stale", "connections")
_OFFENCE = re.compile(
    r'^headwater_\w+_offences_total\{kind="(\w+)",offender="([^"]*)"\} (\S+)$', re.MULTILINE
)


class Ground:
    """The tree; `programs` by name."""

    def __init__(self, directory: Path, stack: ExitStack, authority: Authority | None) -> None:
        self.directory, self._stack, self.authority = directory, stack, authority
        self.programs: dict[str, Program] = {}
        # What hostile sources have sent and was counted.
        self.feeds: list[Kept] = []
        self._manifest = document(QUERIES)
        path = directory / "topology.json"
        path.write_text(json.dumps(self._manifest))
        command = ["headwater_root", "--topology", path, "--directory", directory / "root", "--keep-results"]
        self._start("root", *command, "--metrics", "127.0.0.1:0", environment=self._tls("root", "root"))
        self.node("mid", "root", "intermediate")
        self.node("leaf", "mid", "child")
        files = () if authority is None else _files(authority.issue(steady.NAME))
        to, leaf = directory / "steady", self.programs["leaf"]
        to.mkdir()
        command = ["tests.hostile.steady", to, f"127.0.0.1:{leaf.port}", "leaf", *files]
        self._start("steady", *command, environment={"PYTHONPATH": str(ROOT)})
        self.healthy()

    def _tls(self, name: str, role: str) -> dict[str, str]:
        if self.authority is None:
            return {}
        files = _files(self.authority.issue(name, role=role))
        return {f"HEADWATER_TLS_{field}": str(file) for field, file in zip(_FIELDS, files, strict=True)}

    def _start(self, name: str, *command: object, environment: dict[str, str] | None = None) -> Program:
        log = self.directory / f"{name}.log"
        found = self._stack.enter_context(Program(log, *command, environment=environment))
        self.programs[name] = found
        return found

    def node(self, name: str, parent: str, role: str, *, runner: Sequence[object] = ()) -> Program:
        given = {
            "name": name,
            "role": role,
            "listen": "127.0.0.1:0",
            "parent": parent,
            "parent_address": f"127.0.0.1:{self.programs[parent].port}",
            "flush_interval": 0.02,
            "metrics": "127.0.0.1:0",
        }
        path = self.directory / f"{name}.json"
        path.write_text(json.dumps(given))
        command = (*runner, "headwater_node", "--config", path)
        found = self._start(name, *command, environment=self._tls(name, "node"))
        until(lambda: found.get("/readyz")[0] == 200, f"{name} is not ready")
        return found

    # What is to hold after each attack

    def _progress(self) -> dict[str, Any]:
        path = self.directory / "steady" / "progress"
        return dict(json.loads(path.read_text())) if path.exists() else {"parts": 0, "counted": 0}

    def healthy(self) -> None:
        """All run and are ready, and what the steady source sends now is counted."""
        begun = self._progress()["parts"] + 1
        until(lambda: self._progress()["counted"] >= begun * steady.ROWS, "the steady source is held up")
        for name in ("root", "mid", "leaf"):
            status, why = self.programs[name].get("/readyz")
            assert status == 200, (name, why)
            assert not self.programs[name].said("halted")

    def offences(self, name: str) -> dict[tuple[str, str], int]:
        """Of one program, by kind and offender."""
        text = self.programs[name].get("/metrics")[1]
        return {(kind, who): int(float(count)) for kind, who, count in _OFFENCE.findall(text)}

    def told(self, name: str, kind: str, offender: str) -> list[dict[str, Any]]:
        """The lines of one offence of one offender."""
        lines = self.programs[name].lines
        return [line for line in lines if (line.get("offence"), line.get("sender")) == (kind, offender)]

    @contextmanager
    def attacked(self, name: str, kind: str, offender: str, *, times: int = 1) -> Iterator[None]:
        """An attack on one program: it comes to one line, is counted, takes no memory, and harms nobody."""
        before, size = self.offences(name).get((kind, offender), 0), self.resident(name)
        lines = len(self.told(name, kind, offender))
        yield
        wanted = before + times
        until(lambda: self.offences(name).get((kind, offender), 0) >= wanted, f"{kind} is not counted")
        if kind not in REPEATED:
            assert self.offences(name)[kind, offender] == wanted
        # Said once, and not again within the minute.
        assert len(self.told(name, kind, offender)) == (1 if not before else lines)
        self.healthy()
        assert self.resident(name) - size < GROWTH

    def resident(self, name: str) -> int:
        """Bytes of memory that a program has."""
        status = Path(f"/proc/{self.programs[name].pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1_024

    # Ends

    def retire(self, *names: str) -> None:
        """Give hostile sources up, so that no window waits for them."""
        with grpc.insecure_channel(f"127.0.0.1:{self.programs['root'].port}") as channel:
            control = control_pb2_grpc.ControlStub(channel)  # type: ignore[no-untyped-call]  # generated
            for name in names:
                control.Retire(control_pb2.RetireRequest(source=pb.Named(name=name)), timeout=PATIENCE)

    def assert_exact(self) -> None:
        """Every window is the oracle's; ends all."""
        assert self.programs["steady"].end(signal.SIGTERM) == 0
        assert self._progress()["done"]
        for name in ("leaf", "mid", "root"):
            assert self.programs[name].end(signal.SIGTERM) == 0, self.programs[name].lines[-3:]
        kept = Kept(steady.NAME, steady.SITE, steady.LATENESS)
        kept.kept += [steady.part(number) for number in range(self._progress()["parts"])]
        kept.kept.append(beat(steady.LAST))
        assert differing(topology_of(self._manifest), self.directory, [kept, *self.feeds]) == 0

    def sent(self, name: str, *parts: Events) -> None:
        """What a hostile source has sent and should count."""
        found = Kept(name, "", 0)
        found.kept += parts
        self.feeds.append(found)


_FIELDS = ("CERTIFICATE", "KEY", "CA")


def _files(credentials: Credentials) -> tuple[Path, Path, Path]:
    return credentials.certificate, credentials.key, credentials.ca


@contextmanager
def ground(directory: Path, *, tls: bool = False) -> Iterator[Ground]:
    with ExitStack() as stack:
        yield Ground(directory, stack, Authority(directory) if tls else None)


class Talker:
    """A stream of somebody who says what they like."""

    def __init__(
        self,
        port: int,
        *,
        credentials: Credentials | None = None,
        parent: str = "",
        compression: grpc.Compression | None = None,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        address = f"127.0.0.1:{port}"
        given: list[tuple[str, Any]] = [*options, ("grpc.max_send_message_length", -1)]
        given.append(("grpc.use_local_subchannel_pool", 1))
        if credentials is None:
            self._channel = grpc.insecure_channel(address, given, compression)
        else:
            given.append(("grpc.ssl_target_name_override", parent))
            self._channel = grpc.secure_channel(address, credentials.channel(), given, compression)
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        link: Any = self._channel.stream_stream(LINK, None, None)
        self._call = link(iter(self._waiting.get, None), timeout=PATIENCE)

    def __enter__(self) -> Talker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._waiting.put(None)
        self._call.cancel()
        self._channel.close()

    def say(self, *messages: bytes | pb.Envelope) -> None:
        for each in messages:
            self._waiting.put(each if isinstance(each, bytes) else each.SerializeToString())

    def hear(self) -> pb.Envelope:
        return pb.Envelope.FromString(next(self._call))

    def hear_of(self, kind: str) -> Any:
        """The next message of a kind."""
        while (found := self.hear()).WhichOneof("message") != kind:
            pass
        return getattr(found, kind)

    def status(self) -> tuple[grpc.StatusCode, str]:
        """How the stream ends."""
        try:
            for _ in self._call:
                pass
        except grpc.RpcError as error:
            held: Any = error
            return held.code(), held.details()
        return grpc.StatusCode.OK, ""

    def begin(self, name: str) -> None:
        self.say(first(name))
        assert self.hear().protocol == PROTOCOL

    def admitted(self, name: str, child: str) -> None:
        """Become a source of the tree."""
        hello = pb.Hello(name=name, spool=f"spool {name}", opening="o", head=10)
        self.say(pb.Envelope(sender=name, to=child, hello=hello))
        hello.echo = self.hear_of("challenge").nonce
        self.say(pb.Envelope(sender=name, to=child, hello=hello))
        assert self.hear_of("welcome").incarnation == 1


def first(name: str, protocol: int = PROTOCOL) -> bytes:
    return pb.Envelope(sender=name, to=name, protocol=protocol).SerializeToString()


def columns(name: str, to: str, events: events_pb2.Events, id: str = "1") -> pb.Envelope:
    stream = pb.StreamId(opener=name, number=1)
    return pb.Envelope(
        sender=name, to=to, columns=pb.Columns(stream=stream, id=id, opening="o", events=events)
    )
