"""The commands of `python -m airgap_kind`."""

import argparse
import functools
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from airgap_kind import baseimage, config, engine, nodeimage, pruning, toolchain, tools
from airgap_kind.cache import VARIABLE, Cache, default_root
from airgap_kind.cluster import Cluster
from airgap_kind.engine import Engine, PrivateEngine
from airgap_kind.errors import Failure
from airgap_kind.nodeimage import Sources
from airgap_kind.progress import Progress
from airgap_kind.versions import VERSIONS

NAME = "headwater"


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="airgap_kind",
        description="kind clusters, also where there is neither a Docker engine nor an image registry.",
        epilog=f"Everything is kept in {VARIABLE}, by default airgap-kind in the user's cache directory.",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *, cluster: bool = False) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        if cluster:
            added.add_argument("--name", default=NAME, help=f"the cluster's name (default: {NAME})")
            added.add_argument(
                "--kubeconfig", type=Path, help="its kubeconfig (default: one of its own in the cache)"
            )
        return added

    up = command("up", "have a cluster that runs and is healthy", cluster=True)
    up.add_argument(
        "--worker",
        action="append",
        type=labels,
        metavar="KEY=VALUE,...",
        help="a worker with these labels, once for each (default: "
        + " ".join(f"{config.TIER}={tier}" for tier in config.TIERS)
        + ")",
    )
    command("down", "remove the cluster; the engine and the cache stay", cluster=True)
    command("status", "the engine, the images, the cluster; ends with 1 unless it is healthy", cluster=True)
    load = command("load", "load an image archive (docker save) onto the nodes", cluster=True)
    load.add_argument("archive", type=Path, metavar="ARCHIVE")
    load.add_argument("--nodes", default="", help="onto these nodes alone, separated by commas")
    command("env", 'print the shell\'s exports: eval "$(python -m airgap_kind env)"', cluster=True)
    tool = command("tool", "print the path of a program, built at need")
    tool.add_argument("tool", choices=tools.NAMES)
    command("node-image", "have the engine hold a node image, and print its name for kind's --image")
    base = command("base-image", "have the engine hold an image: Debian, python3, ca-certificates, tini")
    base.add_argument("image", metavar="NAME", help="for example local/python:3.11")
    command("engine-stop", "end the private engine, if one runs; its images and clusters stay on the disk")
    command("prune", "remove what earlier versions left in the cache and in the private engine")
    return top


def labels(text: str) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in text.split(",") if pair]
    if any(not mark or not key for key, mark, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE,...")
    return {key: value for key, _, value in pairs}


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    progress = Progress()
    cache = Cache(default_root(os.environ))
    sources = Sources(
        cache, VERSIONS, progress, functools.cache(lambda: toolchain.find(cache, VERSIONS, progress))
    )
    signal.signal(signal.SIGTERM, interrupted)
    try:
        if args.command in ("status", "env"):
            return {"status": status, "env": env}[args.command](args, sources)
        with cache.lock(progress):
            return locked(args, sources)
    except Failure as failure:
        progress.say(f"airgap_kind: {failure}")
        return 1
    except KeyboardInterrupt:
        progress.say("airgap_kind: interrupted; the next run goes on with what is there")
        return 130


def interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def locked(args: argparse.Namespace, sources: Sources) -> int:
    """The commands that change something, one at a time."""
    progress, cache = sources.progress, sources.cache
    if args.command == "engine-stop":
        with progress.step("stopping the private engine"):
            PrivateEngine(cache).stop()
        return 0
    if args.command == "prune":
        pruning.prune(engine.find_running(cache), sources)
        return 0
    if args.command == "tool":
        sys.stdout.write(f"{tool(args.tool, sources)}\n")
        return 0
    if args.command == "node-image":
        sys.stdout.write(f"{nodeimage.ensure(engine.ensure(cache, progress), sources)}\n")
        return 0
    if args.command == "base-image":
        baseimage.ensure(args.image, engine.ensure(cache, progress), sources)
        return 0
    cluster = Cluster(
        args.name, sources, args.kubeconfig, tuple(args.worker) if getattr(args, "worker", None) else None
    )
    if args.command == "down":
        down(cluster)
        return 0
    docker = engine.ensure(cache, progress)
    if args.command == "load":
        cluster.load(docker, args.archive, [node for node in args.nodes.split(",") if node])
        return 0
    cluster.up(docker)
    progress.total(f"the cluster {cluster.name} is up (kubeconfig: {cluster.kubeconfig})")
    return 0


def tool(name: str, sources: Sources) -> Path:
    found = tools.Tools(sources)
    match name:
        case "kind":
            return found.kind()
        case "helm":
            return found.helm()
        case _:
            return found.kubectl(engine.find_running(sources.cache))


def down(cluster: Cluster) -> None:
    progress, cache = cluster.sources.progress, cluster.sources.cache
    there = engine.find_running(cache)
    if there:
        cluster.down(there)
    elif cluster.known:
        # An engine that was ended under its cluster would bring it back the next time.
        cluster.down(PrivateEngine(cache).start(progress))
        PrivateEngine(cache).stop()
    else:
        progress.say(f"no engine runs, and no cluster {cluster.name} is known")


def status(args: argparse.Namespace, sources: Sources) -> int:
    docker = engine.find_running(sources.cache)
    lines = [f"cache    {sources.cache.root}"]
    if not docker:
        lines.append("engine   none runs")
    elif docker.private:
        lines.append(f"engine   private, process {PrivateEngine(sources.cache).pid()}, {docker.host}")
    else:
        lines.append(f"engine   the system's ({docker.docker})")
    archives = sorted(path.name for path in sources.cache.images.glob("node-v*"))
    lines.extend(f"image    {name}" for name in archives)
    good = False
    if docker:
        cluster = Cluster(args.name, sources, args.kubeconfig)
        good = describe(cluster, docker, lines)
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if good else 1


def describe(cluster: Cluster, docker: Engine, lines: list[str]) -> bool:
    containers = cluster.containers(docker)
    if not containers:
        lines.append(f"cluster  {cluster.name}: none")
        return False
    if not cluster.known:
        lines.append(f"cluster  {cluster.name}: not made from this cache")
        return False
    lines.extend(f"node     {one.name}: {'running' if one.running else 'stopped'}" for one in containers)
    cluster.workers = tuple({} for _ in containers[1:])
    health = cluster.health(docker)
    lines.append(f"cluster  {cluster.name}: {'healthy' if health.good else '; '.join(health.problems)}")
    lines.append(f"config   {cluster.kubeconfig}")
    return health.good


def env(args: argparse.Namespace, sources: Sources) -> int:
    docker = engine.find_running(sources.cache)
    cluster = Cluster(args.name, sources, args.kubeconfig)
    exports = dict(docker.env) if docker else {"DOCKER_HOST": PrivateEngine(sources.cache).host}
    exports["KUBECONFIG"] = str(cluster.kubeconfig)
    exports["PATH"] = cluster.tools.path(os.environ.get("PATH", os.defpath))
    sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in exports.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
