"""A cluster for each test and each release of Slurm that is here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bed import Bed
from .release import RELEASES, Release


@pytest.fixture(params=RELEASES, ids=lambda r: r.name)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    if chosen.missing:
        pytest.skip(chosen.missing)
    return chosen


@pytest.fixture
def bed(release: Release) -> Iterator[Bed]:
    """A machine with munge; nothing of Slurm runs yet."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    made = Bed(release, folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)
