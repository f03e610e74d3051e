"""`headwater source`: a source that is given up holds no window up, and a skipped record is never read."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from headwater_cli.app import main
from headwater_source.source import Source
from tests.patience import PATIENCE
from tests.programs import until
from tests.tree.processes import Tree, tree

SECOND = 1_000_000
BEGIN = 1_700_000_000 * SECOND


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Tree]:
    with tree(tmp_path / "tree", expected=2) as found:
        yield found


def say(running: Tree, *arguments: object) -> Result:
    given = [*map(str, arguments), "--root", f"127.0.0.1:{running.above}"]
    return CliRunner().invoke(main, given)


def said(running: Tree, *arguments: object) -> dict[str, Any]:
    done = say(running, *arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def status(running: Tree, name: str) -> dict[str, Any]:
    """The latest incarnation of a source."""
    sources = [each for each in said(running, "status")["sources"] if each["name"] == name]
    found: dict[str, Any] = sources[-1]
    return found


def sent(running: Tree, directory: Path, name: str, *ts: int) -> None:
    """Send and wait until all is counted."""

    async def send() -> None:
        async with (
            Source(name, running.address, spool=directory / name, without_keys=True) as source,
            asyncio.timeout(PATIENCE),
        ):
            await source.send(np.array(ts) + BEGIN, np.ones(len(ts)))
            await source.flush()

    asyncio.run(send())


def test_a_source_that_is_retired_is_waited_for_no_longer(running: Tree, tmp_path: Path) -> None:
    sent(running, tmp_path, "stays", 1, 10 * SECOND)
    sent(running, tmp_path, "goes", 2)
    assert said(running, "status")["watermark"] == BEGIN + 2
    assert said(running, "source", "retire", "goes") == {"name": "goes", "incarnation": 1, "counted_to": 1}
    assert said(running, "status")["watermark"] == BEGIN + 10 * SECOND
    assert status(running, "goes")["state"] == "retired"
    # Once more is no error; it says the same.
    done = say(running, "source", "retire", "goes", "--incarnation", 1)
    assert done.exit_code == 0
    assert (
        "incarnation 1 is retired, counted up to record 1; if it returns it is incarnation 2" in done.output
    )
    # What it sends from now on is another incarnation's, behind what was counted.
    sent(running, tmp_path, "goes", 20 * SECOND)
    found = status(running, "goes")
    assert (found["incarnation"], found["position"], found["state"]) == (2, 1, "live")


def test_a_record_that_is_skipped_holds_nobody_up(running: Tree, tmp_path: Path) -> None:
    async def run() -> None:
        async with Source("s", running.address, spool=tmp_path / "s", without_keys=True) as source:
            # The second one lies in a future that is too far: the child does not read on.
            future = time.time_ns() // 1_000 + 30 * 86_400 * SECOND
            await source.send([BEGIN, future, BEGIN + 2], [1.0, 2.0, 4.0])
            await asyncio.to_thread(
                until, lambda: said(running, "status")["totals"]["counted"] == 1, "the first is not counted"
            )
            assert not source.done
            answer = await asyncio.to_thread(said, running, "source", "skip", "s", 2)
            assert (answer["name"], answer["incarnation"], answer["seq"]) == ("s", 1, 2)
            assert answer["counted_to"] == 1
            async with asyncio.timeout(PATIENCE):
                await source.flush()

    asyncio.run(run())
    found = status(running, "s")
    assert (found["position"], found["counted"], found["rejected"]) == (3, 2, 1)
    assert found["largest"] == BEGIN + 2


def test_a_skip_of_a_record_that_the_spool_does_not_have_lapses_and_says_so(
    running: Tree, tmp_path: Path
) -> None:
    sent(running, tmp_path, "s", 1)
    done = say(running, "source", "skip", "s", 3)
    assert done.exit_code == 0, done.output
    assert "record 3 is passed over when it comes" in done.output
    assert "unless the spool is opened again without it" in done.output
    # Which one it is most likely to be, if the source waits.
    assert "s is counted up to record 1: if it waits, then with record 2" in done.output
    done = say(running, "source", "skip", "s", 2)
    assert "if it waits" not in done.output
    sent(running, tmp_path, "s", 2, 3)
    found = status(running, "s")
    assert (found["position"], found["counted"], found["rejected"]) == (3, 3, 0)


def test_what_a_quarantine_holds_back_is_late_where_the_watermark_has_passed_it(tmp_path: Path) -> None:
    with tree(tmp_path / "tree", expected=2, limits={"keysPerSource": 3}) as running:

        async def run() -> None:
            async with Source("s", running.address, spool=tmp_path / "s", without_keys=True) as source:
                await source.send(np.arange(5) + BEGIN, np.ones(5), keys=list("abcde"))
                await asyncio.to_thread(sent, running, tmp_path, "other", 1, 10 * SECOND)
                await asyncio.to_thread(
                    until, lambda: source.fenced is not None, "the source is not in quarantine"
                )
            # The others go on without it.
            watermark = BEGIN + 10 * SECOND
            await asyncio.to_thread(
                until, lambda: said(running, "status")["watermark"] == watermark, "the watermark waits"
            )
            done = await asyncio.to_thread(say, running, "source", "release", "s")
            assert "what the watermark has passed by then is late, and in no window" in done.output
            async with (
                Source("s", running.address, spool=tmp_path / "s", without_keys=True) as source,
                asyncio.timeout(PATIENCE),
            ):
                await source.flush()

        asyncio.run(run())
        found = status(running, "s")
        assert (found["incarnation"], found["position"], found["counted"], found["late"]) == (2, 2, 0, 2)


def test_a_source_with_too_many_keys_is_taken_again_once_it_is_released(tmp_path: Path) -> None:
    with tree(tmp_path / "tree", limits={"keysPerSource": 3}) as running:

        async def run() -> None:
            async with Source("s", running.address, spool=tmp_path / "s", without_keys=True) as source:
                await source.send(np.arange(5) + BEGIN, np.ones(5), keys=list("aabcd"))
                await asyncio.to_thread(
                    until, lambda: source.fenced is not None, "the source is not in quarantine"
                )
                assert source.fenced is not None
                assert "it has brought 4 distinct keys, and limits.keysPerSource is 3" in source.fenced
                assert "release it with: headwater source release s" in source.fenced
                told = await asyncio.to_thread(said, running, "status")
                (quarantined,) = told["quarantined"]
                assert (quarantined["name"], told["totals"]["quarantined"]) == ("s", 1)
                shown = (await asyncio.to_thread(say, running, "status")).output
                assert "in quarantine: s: it has brought 4 distinct keys" in shown
                answer = await asyncio.to_thread(said, running, "source", "release", "s")
                assert answer == {"name": "s", "released": True, "incarnation": 1, "counted_to": 4}
            # It would say hello again within a minute; another process does at once.
            async with (
                Source("s", running.address, spool=tmp_path / "s", without_keys=True) as source,
                asyncio.timeout(PATIENCE),
            ):
                await source.flush()

        asyncio.run(run())
        found = status(running, "s")
        assert (found["incarnation"], found["position"], found["state"]) == (2, 1, "live")
        told = said(running, "status")
        assert (told["quarantined"], told["totals"]["counted"]) == ([], 5)
        done = say(running, "source", "release", "s")
        assert done.exit_code == 0
        assert "s: is not in quarantine; nothing was changed" in done.output


@pytest.mark.parametrize(
    "arguments, told",
    [
        (("retire", "nobody"), "'nobody' is not known; see the names with headwater status"),
        (("retire", "s", "--incarnation", "3"), "'s/3' is not known"),
        (("skip", "nobody", "4"), "'nobody' is not known"),
        (("release", "nobody"), "'nobody' is not known; see the names with headwater status"),
        (("skip", "s", "1"), "seq: 1 was read already; give one above 1"),
        (("skip", "s", "0"), "0 is not in the range 1<=x<=9223372036854775807"),
    ],
)
def test_what_cannot_be_decided_is_told(shared: Tree, arguments: tuple[str, ...], told: str) -> None:
    done = say(shared, "source", *arguments)
    assert done.exit_code in (1, 2)
    assert told in done.output


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    directory = tmp_path_factory.mktemp("shared")
    with tree(directory / "tree") as found:
        sent(found, directory, "s", 1)
        yield found
