"""A cluster for each test and each release of Slurm that is here."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.integrations.slurm.port import Slurm

from .bed import Bed
from .release import RELEASES, Release
from .ways import WAYS, Cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The playbook's longest walks, of 30 s of a core each, are long with the older of the releases."""
    for item in items:
        if item.path.name == "test_ansible.py" and item.name.endswith(f"[{RELEASES[0].name}]"):
            item.add_marker(pytest.mark.long)


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


@pytest.fixture(scope="module", params=RELEASES, ids=lambda r: r.name)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One for a whole file, with a bit of everything in it: ``ways.Cluster``."""
    release: Release = request.param
    if release.missing:
        pytest.skip(release.missing)
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    bed = Bed(release, folder)
    try:
        yield Cluster(bed)
    finally:
        bed.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=WAYS)
def slurm(cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Each of our ways to ask it."""
    monkeypatch.setenv("PATH", str(cluster.bin), prepend=":")
    return cluster.ask(request.param)
