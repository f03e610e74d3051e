"""A Docker engine: the one that is there, or a private one with its socket and its data in the cache."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from airgap_kind import packages, process, traces, wrapper
from airgap_kind.cache import Cache, write_whole
from airgap_kind.errors import Failure
from airgap_kind.progress import Progress

ANSWER = 20.0
REGISTRY = 30.0
PULL = 900.0
START = 60.0
# dockerd itself waits 15 s for its containers.
STOP = 45.0
# A socket's path has at most 107 bytes; the longest below the cache is that of dockerd's own containerd.
LONGEST = 107


@dataclass(frozen=True)
class Engine:
    """An engine that answers, and how to reach it."""

    docker: str
    host: str | None = None

    @property
    def private(self) -> bool:
        return self.host is not None

    @property
    def env(self) -> dict[str, str]:
        return {"DOCKER_HOST": self.host} if self.host else {}

    def output(self, *args: str | Path, what: str, stdin: str | None = None) -> str:
        return process.output([self.docker, *args], what, env=self.env, stdin=stdin)

    def run(self, *args: str | Path, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
        return process.run([self.docker, *args], env=self.env, timeout=timeout)

    def has_image(self, name: str) -> bool:
        return self.run("image", "inspect", "--format", "{{.Id}}", name).returncode == 0

    def load(self, archive: Path) -> None:
        self.output(
            "load", "--quiet", "--input", archive, what=f"{archive} could not be loaded into the engine"
        )

    def pull(self, image: str) -> str:
        """Why an image could not be pulled; nothing if it was."""
        with tempfile.TemporaryFile("w+") as said:
            child = subprocess.Popen(
                [self.docker, "pull", image],
                env=process.merged(self.env),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                preexec_fn=process.die_with_us(),
            )
            start = time.monotonic()
            while child.poll() is None:
                waited = time.monotonic() - start
                # A registry that is there answers soon; a packet filter may not answer at all.
                if waited > PULL or (waited > REGISTRY and not os.fstat(said.fileno()).st_size):
                    child.terminate()
                    child.wait()
                    return f"no answer within {waited:.0f} s"
                time.sleep(0.1)
            said.seek(0)
            lines = said.read().strip().splitlines()
        return (lines[-1] if lines else "no reason given") if child.returncode else ""

    def answers(self) -> bool:
        # A client whose engine is silent prints what it knows and, in some versions, ends well.
        done = self.run("info", "--format", "{{.ServerVersion}}", timeout=ANSWER)
        return done.returncode == 0 and bool(done.stdout.strip())


class PrivateEngine:
    """dockerd from the system's packages, run by us alone and ended by its process id."""

    def __init__(self, cache: Cache) -> None:
        self.home = cache.engine
        self.data = self.home / "data"
        self.state = self.home / "state"
        self.pid_file = self.home / "docker.pid"
        self.log = self.home / "dockerd.log"
        self.before = self.home / "host.json"
        self.host = f"unix://{self.home / 'docker.sock'}"

    def pid(self) -> int | None:
        """The process id of our dockerd, if it runs."""
        return self._ours(self.pid_file, str(self.data))

    def running(self) -> Engine | None:
        if self.pid() is None:
            return None
        engine = Engine(self._client(), self.host)
        return engine if engine.answers() else None

    def start(self, progress: Progress) -> Engine:
        if sys.platform != "linux":
            raise Failure("no Docker engine answers", "start Docker, or install it")
        if not packages.is_root():
            raise Failure(
                "no Docker engine answers, and to start one of our own needs root",
                "start Docker (and see that you may use it: docker info), or run this as root",
            )
        longest = self.state / "containerd" / "containerd-debug.sock"
        if len(os.fsencode(longest)) > LONGEST:
            raise Failure(
                f"the path {longest} is too long for a socket", "set AIRGAP_KIND_CACHE to a shorter folder"
            )
        needs = {"dockerd": "docker.io", "runc": "runc", "iptables": "iptables"}
        packages.ensure(needs, "a Docker engine", progress)
        # In older releases the client comes with docker.io.
        packages.ensure({"docker": "docker-cli"}, "a Docker engine", progress)
        with progress.step("starting a private Docker engine: none answers here"):
            return self._start()

    def _start(self) -> Engine:
        dockerd = packages.find("dockerd")
        assert dockerd
        self.home.mkdir(parents=True, exist_ok=True)
        if self.pid() is not None:
            self.stop()
        # dockerd takes any process with the id in a left-over file for itself.
        self.pid_file.unlink(missing_ok=True)
        contained = self.state / "containerd" / "containerd.pid"
        if self._ours(contained, str(self.state)) is None:
            contained.unlink(missing_ok=True)
        traces.remember(self.before)
        runtime = self.home / "runc-fitted"
        # Not the interpreter of a checkout's virtual environment, which may go away.
        interpreter = Path(sys.executable).resolve()
        source = Path(wrapper.__file__).read_text(encoding="utf-8")
        write_whole(runtime, f"#!{interpreter} -IS\n{source}", 0o755)
        with self.log.open("w", encoding="utf-8") as log:
            daemon = subprocess.Popen(
                [
                    dockerd,
                    f"--host={self.host}",
                    f"--data-root={self.data}",
                    f"--exec-root={self.state}",
                    f"--pidfile={self.pid_file}",
                    f"--add-runtime=fitted={runtime}",
                    "--default-runtime=fitted",
                ],
                env={**os.environ, "PATH": packages.PLACES},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        engine = Engine(self._client(), self.host)
        until = time.monotonic() + START
        while time.monotonic() < until and daemon.poll() is None:
            if engine.answers():
                return engine
            time.sleep(0.2)
        with contextlib.suppress(ProcessLookupError):
            daemon.terminate()
        raise Failure(
            f"the private Docker engine did not start (log: {self.log})",
            "the last lines of its log say what it lacks",
            process.tail(self.log.read_text(encoding="utf-8", errors="replace")),
        )

    def stop(self) -> bool:
        """Ends dockerd and whatever it started; says whether there was anything."""
        pid = self.pid()
        if pid is not None:
            end(pid, STOP)
        # What a killed dockerd left: its containerd, and the shims of containers.
        left = processes_that_mention(str(self.state))
        for one in left:
            end(one, 5.0)
        self.pid_file.unlink(missing_ok=True)
        # dockerd mounts its data onto itself, and leaves it so.
        for mounted in mounts_below(Path("/proc/self/mounts").read_text(encoding="utf-8"), self.home):
            process.run(["umount", mounted])
        traces.remove(self.before)
        return pid is not None or bool(left)

    def _client(self) -> str:
        """The client of dockerd's own package: one that is much newer does not speak with it."""
        dockerd = packages.find("dockerd")
        beside = Path(dockerd).parent.parent / "bin" / "docker" if dockerd else None
        return str(beside) if beside and beside.exists() else shutil.which("docker") or "docker"

    @staticmethod
    def _ours(pid_file: Path, mention: str) -> int | None:
        try:
            pid = int(pid_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return pid if mention in command_line(pid) else None


def find_system() -> Engine | None:
    docker = shutil.which("docker")
    engine = Engine(docker) if docker else None
    return engine if engine and engine.answers() else None


def find_running(cache: Cache) -> Engine | None:
    """The engine that a cluster of ours would be in, without starting any."""
    private = PrivateEngine(cache)
    # First, and also under its own name if DOCKER_HOST points to it.
    return private.running() or find_system()


def ensure(cache: Cache, progress: Progress) -> Engine:
    return find_running(cache) or PrivateEngine(cache).start(progress)


def mounts_below(mounts: str, folder: Path) -> list[str]:
    """The mount points in a folder, the innermost first."""
    # The kernel writes a blank, and a few others, by its octal number.
    points = [line.split()[1].encode().decode("unicode_escape") for line in mounts.splitlines()]
    return [point for point in reversed(points) if Path(point).is_relative_to(folder)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def processes_that_mention(text: str) -> list[int]:
    ids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [pid for pid in ids if pid != os.getpid() and text in command_line(pid)]


def end(pid: int, patience: float) -> None:
    """SIGTERM, and SIGKILL when it is not enough."""
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return
        until = time.monotonic() + patience
        while time.monotonic() < until:
            # A daemon that we started ourselves stays as a zombie until it is waited for.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
            if not command_line(pid):
                return
            time.sleep(0.1)
