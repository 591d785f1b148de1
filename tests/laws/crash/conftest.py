"""The tripwire, built once, with a state directory and a server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.errors import AliquotError
from aliquot.sim.shim_build import compiler
from laws.crash.bench import Bench
from laws.crash.tripwire import build


@pytest.fixture(scope="session")
def gcc() -> str:
    """Return the C compiler."""
    try:
        return compiler()
    except AliquotError as error:
        pytest.skip(f"no shim library: {error.brief}")


@pytest.fixture(scope="session")
def trip(gcc: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the tripwire library."""
    return build(tmp_path_factory.mktemp("trip"), gcc)


@pytest.fixture
def bench(tmp_path: Path, trip: str) -> Iterator[Bench]:
    """Create a state directory for the test."""
    made = Bench(tmp_path, trip)
    yield made
    made.close()
