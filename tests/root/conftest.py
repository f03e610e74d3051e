"""What several tests of the root need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.root.database import Server, server


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    with server() as running:
        yield running


@pytest.fixture
def database(postgres: Server) -> str:
    """The address of an empty database."""
    return postgres.database()
