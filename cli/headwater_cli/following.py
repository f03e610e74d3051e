"""A running tree that follows its sources: planned anew as these come, go and change, and as measured."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from time import monotonic, sleep

from click import ClickException

from headwater.durations import SECOND
from headwater.planning.assignment import Move
from headwater.planning.planner import Planner
from headwater.topology import Topology
from headwater_cli import headroom
from headwater_cli.client import At, connected
from headwater_cli.feeds import Generated
from headwater_cli.localtree import LocalTree
from headwater_cli.scales import Cast, Phase
from headwater_cli.screen import Echo
from headwater_cli.senders import LOOK, Senders
from headwater_cli.summary import Summary

# For as long as sources go on that are ended by somebody, in seconds.
ENDLESS = 86_400
# How many sources begin at once.
TOGETHER = 50
# How often is looked whether the plan holds, in seconds; from when on what nodes send is known; and how long
# those below a node that ends have to turn elsewhere, at least and at most.
REPLANNED, SETTLED, TURNING, LEAVING = 1.0, 5.0, 1.0, 30.0


class Following:
    """Of one run."""

    def __init__(
        self, topology: Topology, planner: Planner, local: LocalTree, senders: Senders, summary: Summary
    ) -> None:
        """What is done is told in the `summary`."""
        self._topology, self._planner = topology, planner
        self._local, self._senders, self._summary = local, senders, summary

    async def follow(self, script: Sequence[Phase], cast: Cast, tell: Echo) -> None:
        """Have the tree that the sources of a script need, one phase after the other, and what nodes send.
        A phase begins when its tree is there."""
        for number, phase in enumerate(script):
            if number:
                await self._resize(cast, phase, tell)
            until = monotonic() + phase.seconds
            while monotonic() < until:
                await asyncio.sleep(min(REPLANNED, max(until - monotonic(), 0)))
                is_settled = monotonic() - self._senders.begun > SETTLED
                measured = headroom.reductions(self._local.layers()) if is_settled else {}
                await self._replan({}, tell, measured)

    async def _resize(self, cast: Cast, phase: Phase, tell: Echo) -> None:
        """Others from now on: nodes come before those who need them, and go behind them."""
        senders, going = self._senders, self._senders.going
        wanted = {sensor.name: sensor for sensor in cast.sensors(phase)}
        for name in [name for name in going if name not in wanted]:
            senders.end(going.pop(name))
        fresh = {name: sensor for name, sensor in wanted.items() if name not in going}
        rates = {name: cast.rate(name, phase) for name in going}
        # Who sends less does so at once, who sends more once there are nodes for it.
        senders.change({name: rate for name, rate in rates.items() if rate < going[name].sensor.latest_rate})
        await self._replan(rates | {name: sensor.rate for name, sensor in fresh.items()}, tell, {})
        senders.change(rates)
        for number, (name, sensor) in enumerate(fresh.items()):
            second = ceil(monotonic() - senders.begun)
            feed = Generated(replace(sensor, begin=second), ENDLESS)
            senders.feeds.append(feed)
            senders.go(feed, self._local.process(self._planner.tree.sources[name]))
            if number % TOGETHER == TOGETHER - 1:
                await asyncio.sleep(LOOK)

    async def _replan(self, asked: Mapping[str, float], tell: Echo, measured: Mapping[int, float]) -> None:
        """For those who send and as they are to, with the measured reductions of layers, if there are."""
        rates = {name: feed.sensor.latest_rate for name, feed in self._senders.going.items()} | dict(asked)
        if not rates:
            return
        sends = {
            process.name: process.steady.rate("items_up")
            for nodes in self._local.layers()
            for process in nodes.processes
            if measured and process.steady.full
        }
        step = self._planner.replan(int(monotonic() * SECOND), rates, sends, measured)
        local, summary = self._local, self._summary
        if self._planner.beyond is not None and not summary.beyond:
            summary.beyond = str(self._planner.beyond.problems[0])
            tell(f"nodes send more than a tree can be planned for: {summary.beyond}")
        moves = [move for move in step.sources if move.before is not None]
        if not (step.begin or step.end or step.nodes or moves):
            local.tree = step.tree
            return
        tell(headroom.told(step, step.tree.widths))
        summary.widths.append(step.tree.widths)
        summary.moved += [move.item for move in moves]
        await local.begin(step.tree, step.begin)
        for move in step.nodes:
            local.turn(move.item, move.after)
        await self._move(moves)
        if step.end or moves:
            await self._until_left(set(step.end), {move.item: move.after for move in moves})
        if step.end:
            await local.end(step.end)
        summary.nodes = max(summary.nodes, len(local.processes))

    async def _until_left(self, ending: set[str], moved: Mapping[str, str]) -> None:
        """Until nobody sends to nodes that are to end, and those who were moved send there: sources have
        turned elsewhere, or are counted to their end. Nodes below them turn at once."""
        until = monotonic() + LEAVING
        await asyncio.sleep(TURNING)
        while monotonic() < until and self._senders.staying(ending, moved):
            await asyncio.sleep(LOOK)

    async def _move(self, moves: Sequence[Move]) -> None:
        """One source of each child at a time: each move makes batches of its child anew."""
        left = list(moves)
        while left:
            now: dict[str, Move] = {}
            for move in left:
                now.setdefault(move.before or "", move)
            left = [move for move in left if move not in now.values()]
            asked = {move.item: move.after for move in now.values()}
            await asyncio.to_thread(self._assign, asked)
            await asyncio.sleep(self._topology.flush_interval / SECOND)

    def _assign(self, assignment: Mapping[str, str]) -> None:
        """A child that has just begun may not be known yet."""
        until = monotonic() + LEAVING
        while True:
            try:
                with connected(At(f"127.0.0.1:{self._local.root.port}")) as root:
                    root.assign(assignment)
                return
            except ClickException as error:
                if monotonic() > until or self._local.root.ended is not None:
                    raise RuntimeError(error.message) from error
            sleep(LOOK)
