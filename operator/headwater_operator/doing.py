"""What was decided is done to a cluster; what it does not take is told, and holds up nothing else."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

from headwater_operator import kinds
from headwater_operator.cluster import Cluster
from headwater_operator.comparison import Actions, Key
from headwater_operator.errors import ApiError
from headwater_operator.rendering import Manifest

log = logging.getLogger(__name__)


class Doing:
    """Called from any thread."""

    def __init__(self, cluster: Cluster, pool: ThreadPoolExecutor) -> None:
        self._cluster, self._pool = cluster, pool

    def done(self, actions: Actions, namespace: str) -> list[ApiError]:
        """First what pods need, then pods, objects of one kind side by side; then what goes. Gives what was
        not taken; raises if nobody answers."""
        failed: list[ApiError] = []
        for _, alike in groupby(actions.apply, key=lambda each: each["kind"]):
            failed += [error for error in self._pool.map(self._applied, list(alike)) if error is not None]
        for key in actions.delete:
            self._delete(key, namespace)
        return failed

    def _applied(self, manifest: Manifest) -> ApiError | None:
        try:
            self._cluster.apply(manifest)
        except ApiError as error:
            if not error.code:
                raise
            return error
        return None

    def _delete(self, key: Key, namespace: str) -> None:
        kind = next(kind for kind in kinds.KINDS if (kind.group, kind.name) == (key.group, key.kind))
        self._cluster.delete(kind, namespace, key.name)


def words(failed: Sequence[ApiError]) -> str:
    return "; ".join(map(str, failed))
