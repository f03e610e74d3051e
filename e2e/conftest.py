"""The cluster that the kubeconfig names, and the definitions on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kubernetes import client, config

from e2e.api import Api


@pytest.fixture(scope="session")
def api() -> Iterator[Api]:
    """Fails where there is no cluster: `make cluster` gives one."""
    config.load_kube_config()  # type: ignore[no-untyped-call]  # the client's own types
    with client.ApiClient() as connection:
        found = Api(connection)
        found.define()
        yield found
