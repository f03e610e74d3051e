"""Results that can be told apart: by query, incarnation, site, key, and ordinal or start."""

from __future__ import annotations

import numpy as np

from headwater.events import Batch
from headwater.node import Node
from headwater.queries import Query
from headwater.results import Result
from headwater.root import Root
from headwater.windows import Merge, Punctuation, Tumbling


def batch(first: int, *ts: int, source: str = "s") -> Batch:
    return Batch.from_records(source, first, [(t, None, 1.0, None) for t in ts])


def again(first: Query, second: Query) -> Root:
    """A root whose query was removed and added again under the same id."""
    root = Root([first, Query("other", Tumbling(10))])
    root.admit("s", lateness=0)
    root.push(batch(1, 1, 12))
    root.remove(first.id)
    root.add(second)
    root.push(batch(3, 15, 25, 40))
    return root


def test_a_query_that_is_added_again_is_another_incarnation() -> None:
    root = again(Query("q", Tumbling(10)), Query("q", Tumbling(10)))
    found = list(root.take())
    assert [(r.start, r.incarnation) for r in found if r.query == "q"] == [(0, 1), (10, 1), (20, 2)]
    assert {r.incarnation for r in found if r.query == "other"} == {1}
    root.remove("q", at_once=True)
    root.add(Query("q", Tumbling(10)))
    root.push(batch(6, 55, 90))
    assert [r.identity for r in root.take() if r.query == "q"] == [("q", 3, "", None, 50)]


def test_windows_of_two_incarnations_may_begin_together() -> None:
    root = again(Query("q", Tumbling(10)), Query("q", Tumbling(15)))
    root.finish()
    found = [r for r in root.take() if r.query == "q"]
    assert len({r.identity for r in found}) == len(found)


def test_columns_tell_incarnations_apart_where_there_are_several() -> None:
    root = again(Query("q", Tumbling(10), ["sum"]), Query("q", Tumbling(10), ["sum", "max"]))
    results = root.take()
    columns = results.columns("q")
    assert list(columns) == ["site", "key", "start", "end", "incarnation", "sum", "max", "count"]
    assert columns["start"].tolist() == [0, 10, 20]
    assert columns["incarnation"].tolist() == [1, 1, 2]
    assert columns["max"].tolist() == [None, None, 1.0]  # the first one did not ask for it
    assert "incarnation" not in results.columns("other")
    assert "incarnation" not in results.columns("none")


def test_incarnations_are_counted_by_every_node() -> None:
    query = Query("q", Tumbling(10))
    root, node = Root([query]), Node([query])
    for each in (root, node):
        each.admit("s", lateness=0)
    for change in (root.remove("q"), root.add(query)):
        node.apply(change)
    node.push(batch(1, 1, 12))
    root.merge(node.flush())
    assert [r.identity for r in root.take()] == [("q", 2, "", None, 0)]


def marked(merge: Merge, **sources: list[tuple[int, int]]) -> list[Result]:
    root = Root([Query("q", Punctuation("S", "E", merge))], expected=len(sources))
    for name in sources:
        root.admit(name, lateness=0)
    for name, windows in sources.items():
        records = [r for start, end in windows for r in ((start, None, 1.0, "S"), (end, None, None, "E"))]
        root.push(Batch.from_records(name, 1, records))
    root.finish()
    return list(root.take())


def test_the_identity_of_mark_windows() -> None:
    #  a  S0......E5  S5.E5
    #  b  S0..E3
    def identities(merge: Merge) -> list[tuple[object, ...]]:
        return [r.identity[2:] for r in marked(merge, a=[(0, 5), (5, 5)], b=[(0, 3)])]

    assert identities("local") == [("b", None, 0), ("a", None, 0), ("a", None, 1)]
    assert identities("order") == [("", None, 0)]
    # By equal bounds the start is not enough, and an ordinal would be that of one source.
    assert identities("bounds") == [("", None, (0, 3)), ("", None, (0, 5)), ("", None, (5, 5))]
    assert identities("overlap") == [("", None, 0)]


def test_the_identity_of_a_count_window_is_its_rank() -> None:
    root = Root([Query("q", Tumbling(count=np.int64(2)))])  # type: ignore[arg-type]  # what a user may give
    root.admit("s", lateness=0)
    root.push(batch(1, 10, 11, 12, 13))
    root.finish()
    assert [r.identity for r in root.take()] == [("q", 1, "", None, 0), ("q", 1, "", None, 2)]
