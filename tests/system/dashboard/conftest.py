"""A served toy source and its client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from system.dashboard import client as clients
from system.dashboard.client import Client
from system.dashboard.running import Running, running
from system.dashboard.toy import ROUTES, TEMPLATES, ToySource


@pytest.fixture
def source() -> ToySource:
    return ToySource("n1", "n2")


@pytest.fixture
def served(source: ToySource) -> Iterator[Running]:
    with running(source, ROUTES, templates=TEMPLATES) as dashboard:
        yield dashboard


@pytest.fixture
def client(served: Running) -> Iterator[Client]:
    """Create a client that is not logged in."""
    with clients.client(served) as made:
        yield made
