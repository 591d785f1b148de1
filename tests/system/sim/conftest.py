"""A state directory whose simulated nodes stop when the test ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control


@pytest.fixture
def state_dir(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "state")
    yield path
    control.stop(path)
