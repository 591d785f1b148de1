"""The tripwire, built once; a state directory and a server for each test."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.backends.sim.library import compiler
from aliquot.errors import AliquotError
from crash.bench import Bench


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
    target = tmp_path_factory.mktemp("trip") / "trip.so"
    source = Path(__file__).with_name("trip.c")
    flags = ["-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-pthread"]
    subprocess.run([gcc, *flags, "-o", str(target), str(source), "-ldl"], check=True)
    return str(target)


@pytest.fixture
def bench(tmp_path: Path, trip: str) -> Iterator[Bench]:
    """A state directory of the test's own."""
    made = Bench(tmp_path, trip)
    yield made
    made.close()
