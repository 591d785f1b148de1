"""The tripwire, built once; a state directory and a server for each test."""

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
    """The C compiler."""
    try:
        return compiler()
    except AliquotError as error:
        pytest.skip(f"no shim library: {error.brief}")


@pytest.fixture(scope="session")
def trip(gcc: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tripwire library."""
    return build(tmp_path_factory.mktemp("trip"), gcc)


@pytest.fixture
def bench(tmp_path: Path, trip: str) -> Iterator[Bench]:
    """A state directory of the test's own."""
    made = Bench(tmp_path, trip)
    yield made
    made.close()
