"""The commands, each of which is imported when it is called: help and mistakes are answered at once."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from headwater_cli import interrupts

# Where each is, in the order in which help lists them, and the first sentence of its own help.
COMMANDS = {
    "validate": (
        "headwater_cli.validate",
        "Say whether manifests can be used, and everything that is wrong with them.",
    ),
    "plan": (
        "headwater_cli.plan",
        "Say how many nodes a tree needs so that none is overrun, layer by layer, and why.",
    ),
    "bench": ("headwater_cli.bench", "Measure what nodes of this machine take, for spec.node of a manifest."),
    "run": (
        "headwater_cli.launch",
        "Start a whole tree as processes of this machine, with generated or piped sources.",
    ),
    "results": (
        "headwater_cli.resultsread",
        "Read the windows in DIR: of headwater run --output, of a root, or of a jsonLines sink.",
    ),
    "aggregate": (
        "headwater_cli.aggregate",
        "Compute the windows of FILE (- is the standard input) on this machine, without a tree.",
    ),
    "send": (
        "headwater_cli.send",
        "Send events of FILE (- is the standard input) until the root has settled them.",
    ),
    "query": ("headwater_cli.query", "Add, remove and list the queries of a running tree."),
    "source": (
        "headwater_cli.source",
        "Give up sources of a running tree or records, end a quarantine, say who reads a source.",
    ),
    "status": (
        "headwater_cli.status",
        "Say how a running tree stands: watermark, nodes, sources, totals, sinks.",
    ),
    "audit": (
        "headwater_cli.audit",
        "Compute windows anew from archived raw events and compare them with what was emitted.",
    ),
    "rates": (
        "headwater_cli.sourcerates",
        "Say how many events a second sources have sent, from archived raw events.",
    ),
    "simulate": (
        "headwater_cli.simulate",
        "Run the real machines of sources, nodes and root on a simulated network, clock and disk.",
    ),
}


class Commands(click.Group):
    """A group that knows its commands by name until one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with interrupts.ending_at_once():
            found = getattr(import_module(COMMANDS[cmd_name][0]), cmd_name)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if near := get_close_matches(args[0], COMMANDS, 1):
                raise click.UsageError(f"{error.message} Did you mean {near[0]!r}?", ctx) from None
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, said) for name, (_, said) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            sys.exit(interrupts.STOPPED)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="headwater", message="headwater %(version)s")
def main() -> None:
    """Exact windows over IoT event streams, from the devices to the cloud.

    \b
    headwater validate examples/factory.yaml
    headwater run examples/factory.yaml --seconds 10 --verify
    headwater results build/run --query machine-trend
    headwater aggregate day.csv --window 1m --aggregate avg,max
    headwater send day.csv --to 127.0.0.1:7070 --name boiler-7
    headwater query add load.yaml
    headwater source retire boiler-7
    headwater status --watch
    headwater audit examples/factory.yaml --archive raw --results root/sinks/lines
    headwater rates --archive raw
    headwater simulate --seeds 1000
    """
