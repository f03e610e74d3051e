"""A cluster of kind's: made, found healthy, brought back, removed."""

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from airgap_kind import config, nodeimage, process, storage
from airgap_kind.cache import digest, write_whole
from airgap_kind.engine import Engine
from airgap_kind.errors import Failure
from airgap_kind.nodeimage import Sources
from airgap_kind.progress import Progress
from airgap_kind.tools import Tools

LABEL = "io.x-k8s.kind.cluster"
NETWORK = "kind"
# Where the parts of the system are; those of the stock image too.
SYSTEM = ("kube-system", storage.NAMESPACE)
# For a cluster just made, and for one whose nodes were started again.
PATIENCE = 240.0
RETURN = 120.0
# Kubelets report every 2 s; who was not heard of for so long is not ready, whatever is written.
FRESH = 10.0
# What is written of pods is old for a moment after their node has started.
STEADY = 4.0
POLL = 0.5


@dataclass(frozen=True)
class Container:
    id: str
    name: str
    running: bool


@dataclass(frozen=True)
class Health:
    """What is not yet as it should be; a cluster is healthy when nothing is."""

    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        return not self.problems


def judge(listed: Sequence[dict[str, Any]], nodes: int, since: float) -> Health:
    """Nodes ready and heard of since then; each Deployment and DaemonSet of the system available."""
    problems = []
    seen = 0
    for item in listed:
        kind, name, status = item["kind"], item["metadata"]["name"], item.get("status", {})
        if kind == "Node":
            seen += 1
            ready = next((one for one in status.get("conditions", []) if one["type"] == "Ready"), None)
            if not ready or ready["status"] != "True":
                problems.append(f"node {name} is not ready")
            elif parse_time(ready["lastHeartbeatTime"]) < since - 1:
                problems.append(f"node {name} was not heard of")
        elif item["metadata"]["namespace"] not in SYSTEM:
            continue
        elif kind == "Deployment" and status.get("availableReplicas", 0) < item["spec"]["replicas"]:
            problems.append(f"{name} is not available")
        elif kind == "DaemonSet" and (
            status["numberReady"] < status["desiredNumberScheduled"] or not status["desiredNumberScheduled"]
        ):
            problems.append(f"{name} is not ready everywhere")
    if seen != nodes:
        problems.append(f"{seen} of {nodes} nodes have joined")
    return Health(tuple(problems))


def parse_time(text: str) -> float:
    """Of Kubernetes, in seconds, and of Docker, with nine digits more."""
    return datetime.fromisoformat(re.sub(r"\.\d+", "", text)).timestamp()


class Cluster:
    def __init__(
        self,
        name: str,
        sources: Sources,
        kubeconfig: Path | None = None,
        workers: tuple[dict[str, str], ...] | None = None,
    ) -> None:
        self.name = name
        self.sources = sources
        self.tools = Tools(sources)
        self.home = sources.cache.cluster(name)
        self.kubeconfig = kubeconfig or self.home / "kubeconfig"
        self.workers = config.tiers() if workers is None else workers
        self._made = self.home / "made.json"
        self._making = self.home / "making"

    @property
    def progress(self) -> Progress:
        return self.sources.progress

    @property
    def known(self) -> bool:
        """Whether it was made, or begun, from this cache."""
        return self._made.exists() or self._making.exists()

    def up(self, engine: Engine) -> None:
        self.tools.docker(engine)
        containers = self.containers(engine)
        if containers and self._kept(engine, containers):
            return
        if containers:
            self.down(engine)
        self._create(engine)

    def _kept(self, engine: Engine, containers: Sequence[Container]) -> bool:
        """Whether the cluster that is there can stay; stopped nodes of it are started."""
        if not self.known:
            raise Failure(
                f"there is a cluster {self.name} that was not made from {self.sources.cache.root}",
                "give another --name, or remove it with the command `down`",
            )
        record = json.loads(self._made.read_text(encoding="utf-8")) if self._made.exists() else None
        if record is None:
            self.progress.say(f"the cluster {self.name} was left half made: making it anew")
            return False
        if record["key"] != self._key():
            self.progress.say(f"the cluster {self.name} was made to another configuration: making it anew")
            return False
        if record["containers"] != sorted(one.id for one in containers):
            self.progress.say(f"the nodes of {self.name} are not those it was made with: making it anew")
            return False
        stopped = [one for one in containers if not one.running]
        if stopped:
            with self.progress.step(f"starting {', '.join(one.name for one in stopped)}"):
                engine.run("start", *(one.id for one in stopped))
        self._export(engine)
        started = self._started(engine, containers)
        fresh = time.time() - FRESH
        health = self.health(engine, fresh)
        if started > record["healthy"] or not health.good:
            with self.progress.step(f"waiting for the cluster {self.name} to be healthy"):
                health = self._wait(engine, max(started, fresh), RETURN, STEADY)
            if health.good:
                self._record(containers)
        if not health.good:
            self.progress.say(f"{'; '.join(health.problems)}: making the cluster anew")
        return health.good

    def _create(self, engine: Engine) -> None:
        image = nodeimage.ensure(engine, self.sources)
        kind = self.tools.kind()
        self.tools.kubectl(engine)
        self._made.unlink(missing_ok=True)
        write_whole(self._making, "")
        file = self.home / "kind.yaml"
        write_whole(file, self._config())
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        log = self.sources.cache.logs / f"cluster-{self.name}.log"
        log.unlink(missing_ok=True)
        nodes = 1 + len(self.workers)
        with self.progress.step(f"creating the cluster {self.name} of {nodes} nodes", "about 1 min"):
            process.run_logged(
                [kind, "create", "cluster", *self._named(), "--image", image, "--config", file],
                f"kind did not make the cluster {self.name}",
                log,
                self.progress,
                env=self.tools.env(engine),
                remedy="its log has the cause; what was made is removed by the next run",
            )
        with self.progress.step("waiting for its nodes, network and DNS"):
            health = self._wait(engine, time.time() - FRESH, PATIENCE)
            if not health.good:
                raise Failure(f"the cluster {self.name} does not get ready", "", "\n".join(health.problems))
        self._record(self.containers(engine))
        self._making.unlink(missing_ok=True)

    def down(self, engine: Engine) -> None:
        """Removes the cluster, whole or half made, and what only it used."""
        there = bool(self.containers(engine))
        if self.known:
            # From here on it is half made, also if we are interrupted.
            write_whole(self._making, "")
            self._made.unlink(missing_ok=True)
        what = f"removing the cluster {self.name}" if there else f"there is no cluster {self.name}"
        with self.progress.step(what):
            process.output(
                [self.tools.kind(), "delete", "cluster", *self._named()],
                f"kind could not remove the cluster {self.name}",
                env=self.tools.env(engine),
            )
            if engine.private:
                # In use by another cluster, it stays.
                engine.run("network", "rm", NETWORK)
        self._making.unlink(missing_ok=True)
        if self.kubeconfig.parent == self.home:
            self.kubeconfig.unlink(missing_ok=True)

    def load(self, engine: Engine, archive: Path, nodes: Sequence[str]) -> None:
        if not archive.exists():
            raise Failure(f"there is no file {archive}")
        chosen = ["--nodes", ",".join(nodes)] if nodes else []
        with self.progress.step(f"loading {archive.name} onto {', '.join(nodes) or 'every node'}"):
            process.output(
                [self.tools.kind(), "load", "image-archive", archive, "--name", self.name, *chosen],
                f"{archive} could not be loaded",
                env=self.tools.env(engine),
                remedy="it has to be what `docker save` writes, and the cluster has to be up",
            )

    def containers(self, engine: Engine) -> list[Container]:
        form = "{{.ID}}\t{{.Names}}\t{{.State}}"
        listed = engine.output(
            *("ps", "--all", "--no-trunc", "--filter", f"label={LABEL}={self.name}", "--format", form),
            what="the engine did not list its containers",
        )
        rows = (line.split("\t") for line in listed.splitlines())
        return [Container(row[0], row[1], row[2] == "running") for row in rows]

    def health(self, engine: Engine, since: float | None = None) -> Health:
        asked = process.run(
            [
                *(self.tools.kubectl(engine), "--kubeconfig", self.kubeconfig, "--request-timeout=5s"),
                *("get", "nodes,deployments,daemonsets", "--all-namespaces", "--output=json"),
            ],
            env=self.tools.env(engine),
            timeout=20,
        )
        if asked.returncode:
            return Health((f"the API server does not answer: {nodeimage.last_line(asked.stderr)}",))
        items = json.loads(asked.stdout)["items"]
        return judge(items, 1 + len(self.workers), time.time() - FRESH if since is None else since)

    def _record(self, containers: Sequence[Container]) -> None:
        """Notes that the cluster was made whole, and when it was last seen to be healthy after a start."""
        ids = sorted(one.id for one in containers)
        record = {"key": self._key(), "containers": ids, "healthy": time.time()}
        write_whole(self._made, json.dumps(record))

    def _started(self, engine: Engine, containers: Sequence[Container]) -> float:
        """When the last of the nodes was started, by us or by an engine that came back."""
        shown = engine.run("inspect", "--format", "{{.State.StartedAt}}", *(one.id for one in containers))
        return max((parse_time(line) for line in shown.stdout.split()), default=0.0)

    def _wait(self, engine: Engine, since: float, patience: float, steady: float = 0.0) -> Health:
        """Until the cluster has been healthy for `steady` seconds, or patience ends."""
        until = time.monotonic() + patience
        good_since: float | None = None
        while True:
            health = self.health(engine, since)
            now = time.monotonic()
            good_since = (good_since or now) if health.good else None
            if (good_since and now - good_since >= steady) or now > until:
                return health
            time.sleep(POLL)

    def _export(self, engine: Engine) -> None:
        process.run(
            [self.tools.kind(), "export", "kubeconfig", *self._named()],
            env=self.tools.env(engine),
        )

    def _named(self) -> list[str]:
        return ["--name", self.name, "--kubeconfig", str(self.kubeconfig)]

    def _config(self) -> str:
        return config.render(self.workers)

    def _key(self) -> str:
        versions = self.sources.versions
        return digest(self._config(), nodeimage.name(versions), versions.stock_image, versions.kind)
