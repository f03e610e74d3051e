"""A source and its spool: what it is told by those who know less, or spoke to an earlier process."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np

from headwater.machines.messages import Ack, Columns, Commit, Fenced, Hello, Probe, Resync, Standing, Welcome
from headwater.machines.source import Settings, SourceMachine
from headwater.prefix import Prefix
from headwater.sources import SourceId
from headwater_source.spool import Spool

SOURCE = str(SourceId("s", 1))


def welcomed(spool: Spool) -> tuple[SourceMachine, list[Columns]]:
    """A source that the root has taken in, and what it sends first."""
    machine = SourceMachine("s", spool, Settings(rows=100), "c")
    machine.step("c", Welcome(spool.opening, SOURCE, 0, "c", "address"), 0)
    return machine, columns(machine)


def columns(machine: SourceMachine) -> list[Columns]:
    return [each.message for each in machine.send(0) if isinstance(each.message, Columns)]


def test_a_child_that_stands_below_what_the_spool_still_has_does_not_stop_the_source(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 24, segment_bytes=64 << 10) as spool:
        for n in range(100):
            spool.append(np.arange(100) + n, np.ones(100))
        machine, sent = welcomed(spool)
        stream = sent[0].stream
        machine.step("c", Commit(stream, {SOURCE: 5_000}, None), 0)
        assert 0 < spool.base <= 5_000
        (first, *_) = columns(machine)
        assert first.batch.first == 5_001
        # The child has not heard yet what the root has counted.
        machine.step("c", Resync(first.stream, first.id, 0, {SOURCE: Standing(Prefix(17), 0, "")}), 0)
        (again, *_) = columns(machine)
        assert again.batch.first == 5_001


def test_a_root_with_an_older_log_counts_again_what_the_spool_still_has(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 24, segment_bytes=64 << 10) as spool:
        for n in range(100):
            spool.append(np.arange(100) + n, np.ones(100))
        machine, sent = welcomed(spool)
        machine.step("c", Commit(sent[0].stream, {SOURCE: 5_000}, None), 0)
        base = spool.base
        (first, *_) = columns(machine)
        standing = Standing(Prefix(base + 7), 0, "")
        machine.step("c", Resync(first.stream, first.id, 0, {SOURCE: standing}), 0)
        (again, *_) = columns(machine)
        assert (again.batch.first, machine.lost_from) == (base + 8, None)
        assert not machine.done
        machine.step("c", Commit(first.stream, {SOURCE: 10_000}, None), 0)
        assert machine.done


def test_a_root_that_has_counted_less_than_the_spool_begins_with_is_named(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 24, segment_bytes=64 << 10) as spool:
        for n in range(100):
            spool.append(np.arange(100) + n, np.ones(100))
        machine, sent = welcomed(spool)
        machine.step("c", Commit(sent[0].stream, {SOURCE: 5_000}, None), 0)
        (first, *_) = columns(machine)
        machine.step("c", Resync(first.stream, first.id, 0, {SOURCE: Standing(Prefix(17), 0, "")}), 0)
        assert machine.lost_from == 17
        # A root that stands there says so again and again.
        machine.step("c", Commit(first.stream, {SOURCE: 17}, None), 0)
        assert machine.lost_from == 17
        # A child that had not heard yet hears of it: of the number that the source knows already.
        machine.step("c", Commit(first.stream, {SOURCE: 5_000}, None), 0)
        assert machine.lost_from is None


def test_a_source_is_not_done_while_the_root_has_lost_records_of_it(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 24, segment_bytes=64 << 10) as spool:
        for n in range(100):
            spool.append(np.arange(100) + n, np.ones(100))
        machine, sent = welcomed(spool)
        machine.step("c", Commit(sent[0].stream, {SOURCE: 10_000}, None), 0)
        assert machine.done
        (probe,) = [each.message for each in machine.tick(10_000_000) if isinstance(each.message, Probe)]
        machine.step("c", Resync(probe.stream, probe.id, 0, {SOURCE: Standing(Prefix(17), 0, "")}), 0)
        assert (machine.lost_from, machine.done) == (17, False)


def test_what_an_earlier_process_was_answered_is_not_for_this_one(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        _, (before,) = welcomed(spool)
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        machine, (after,) = welcomed(spool)
        assert (before.stream != after.stream, before.id != after.id) == (True, True)
        machine.step("c", Ack(before.stream, before.id), 0)
        assert machine.busy
        machine.step("c", Ack(after.stream, after.id), 0)
        assert not machine.busy


def test_what_was_counted_under_the_name_before_makes_room(tmp_path: Path) -> None:
    """Of a source that was retired, or in quarantine, before it had heard of it."""
    with Spool.open(tmp_path, limit_bytes=1 << 24, segment_bytes=64 << 10) as spool:
        for n in range(100):
            spool.append(np.arange(100) + n, np.ones(100))
        machine, _ = welcomed(spool)
        machine.step("c", Fenced("s", spool.opening, "it is in quarantine", quarantined=True), 0)
        assert (spool.base, spool.counted) == (0, 0)
        machine.step("c", Welcome(spool.opening, str(SourceId("s", 2)), 5_000, "c", "address"), 0)
        assert 0 < spool.base <= 5_000 == spool.counted
        (first, *_) = columns(machine)
        assert (first.batch.first, len(first.batch)) == (1, 100)
        # All of it, and nothing follows: a full spool would wait for ever.
        machine.step("c", Welcome(spool.opening, str(SourceId("s", 3)), spool.head, "c", "address"), 0)
        assert machine.done
        assert spool.base == spool.counted == spool.head


def hellos(machine: SourceMachine, until: int) -> list[int]:
    """When it says hello, in seconds, of some that nobody answers."""
    ticks = range(0, until * 1_000_000, 250_000)
    return [
        now // 1_000_000
        for now in ticks
        if any(isinstance(each.message, Hello) for each in machine.tick(now))
    ]


def test_a_source_that_nobody_answers_says_hello_every_few_seconds(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 24) as spool:
        machine = SourceMachine("s", spool, Settings(), "c")
        said = hellos(machine, 300)
        # The root may come at any moment, and its windows wait.
        assert max(later - earlier for earlier, later in pairwise(said)) <= 6
        assert len(said) < 80
        # One that was told that it may not has been heard.
        machine.step("c", Fenced("s", spool.opening, "another spool has this name"), 0)
        assert len(hellos(machine, 300)) < 20


def test_on_a_new_connection_everything_is_sent_at_once(tmp_path: Path) -> None:
    """However long the one before was of no use: what was missed on it has nothing to do with this one."""
    settings = Settings(rows=100)
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        machine, (before,) = welcomed(spool)
        now = 0
        while now < 60_000_000:
            now += settings.retry
            machine.tick(now)
        machine.disconnect()
        # Nobody is there: nothing is sent, and nothing is missed.
        assert machine.tick(now + settings.repeat) == []
        now += 2 * settings.repeat
        machine.connect("c", now)
        sent = [each.message for each in (*machine.send(now), *machine.tick(now))]
        (again,) = [each for each in sent if isinstance(each, Columns)]
        assert again.stream != before.stream
        assert np.array_equal(again.batch.ts, before.batch.ts)
        assert [each for each in sent if isinstance(each, Hello)]


def test_a_source_talks_to_whoever_is_at_the_other_end(tmp_path: Path) -> None:
    """Behind one address there may be another child at each connection."""
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        machine, _ = welcomed(spool)
        machine.connect("d", 1)
        assert {each.to for each in (*machine.send(1), *machine.tick(1))} == {"d"}


def test_a_child_that_answers_questions_is_not_silent(tmp_path: Path) -> None:
    """One that has no room for records answers what it is asked."""
    settings = Settings(rows=100)
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        machine, (sent,) = welcomed(spool)
        now = settings.retry
        while now <= 2 * settings.silence:
            asked = [each.message for each in machine.tick(now) if isinstance(each.message, Probe)]
            assert not machine.is_silent(now)
            if asked:
                machine.step("c", Commit(sent.stream, {}, None), now)
            now += settings.retry
        assert machine.is_silent(now + settings.silence)


def test_each_silent_connection_has_twice_as_long(tmp_path: Path) -> None:
    """What is sent anew takes as long again where the way is narrow; an answer in time ends that."""
    settings = Settings(rows=100)
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        machine, _ = welcomed(spool)
        now, borne = 0, []
        for _ in range(8):
            machine.connect("c", now)
            (sent,) = [each.message for each in machine.send(now) if isinstance(each.message, Columns)]
            begin = now
            while not machine.is_silent(now):
                now += settings.silence // 4
            borne.append(round((now - begin) / settings.silence, 2))
            machine.on_silence()
        assert borne == [1.25, 2.25, 4.25, 8.25, 16.25, 16.25, 16.25, 16.25]
        machine.step("c", Ack(sent.stream, sent.id), begin + settings.silence)
        spool.append(np.arange(100, 200), np.ones(100))
        machine.send(begin + settings.silence)
        assert machine.is_silent(begin + 2 * settings.silence + 1)


def test_a_child_through_which_no_hello_is_answered_is_silent(tmp_path: Path) -> None:
    settings = Settings()
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        machine = SourceMachine("s", spool, settings)
        machine.connect("c", 0)
        assert not machine.is_silent(settings.silence)
        assert machine.is_silent(settings.silence + 1)
        # One that is told why it may not come has been answered.
        machine.step("c", Fenced("s", spool.opening, "another spool has this name"), 0)
        assert not machine.is_silent(settings.silence + 1)


def test_the_root_hears_of_every_attempt_to_reach_the_child_that_failed(tmp_path: Path) -> None:
    with Spool.open(tmp_path, limit_bytes=1 << 20) as spool:
        spool.append(np.arange(100), np.ones(100))
        machine, _ = welcomed(spool)
        machine.tick(1)
        for failures in (1, 2, 3):
            machine.on_unreachable("b", failures)
            assert [each.avoid for each in hellos_of(machine, failures)] == ["b"]
            machine.on_unreachable("b", failures)
            assert hellos_of(machine, failures) == []
        machine.on_unreachable("", 3)
        assert [each.avoid for each in hellos_of(machine, 4)] == [""]


def hellos_of(machine: SourceMachine, now: int) -> list[Hello]:
    return [each.message for each in machine.tick(now) if isinstance(each.message, Hello)]
