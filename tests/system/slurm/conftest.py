"""A cluster for each test and each installed release of Slurm."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.slurm.client.port import Slurm
from support import selection

from .bed import Bed
from .release import RELEASES, Release
from .transports import TRANSPORTS, Cluster

_TELLS_RELEASES_APART = re.compile(r"\b(Version|OldSlurmError|RELOADS|2\d\.\d\d)\b")
ABOUT = tuple(
    path.relative_to(selection.ROOT).as_posix()
    for path in sorted((selection.ROOT / "src").rglob("*.py"))
    if "slurm" in path.as_posix() and _TELLS_RELEASES_APART.search(path.read_text(encoding="utf-8"))
)
"""Code that distinguishes or names releases of Slurm. A change to it requires all tests with both releases."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run each test with the release that the commit draws of the installed ones; with the other release it is long.

    The tests of a file that share a cluster share the draw. A test that is long already is not drawn a second time.
    """
    here = [release for release in RELEASES if not release.missing] or RELEASES
    for item in items:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        release = params.get("cluster", params.get("release"))
        if isinstance(release, Release) and not any(m.args[0] == "release" for m in item.iter_markers("parametrize")):
            name = item.nodeid.partition("::")[0] if "cluster" in params else item.nodeid.replace(release.name, "")
            if not item.get_closest_marker("long") and release != here[selection.draw(name, len(here))]:
                item.add_marker(
                    pytest.mark.long(name=f"{name} {release.name}", about=(*ABOUT, item.nodeid.partition("::")[0]))
                )


@pytest.fixture(params=RELEASES, ids=lambda r: r.name)
def release(request: pytest.FixtureRequest) -> Release:
    chosen: Release = request.param
    if chosen.missing:
        pytest.skip(chosen.missing)
    return chosen


@pytest.fixture
def bed(release: Release) -> Iterator[Bed]:
    """Create a machine with munge. No part of Slurm runs yet."""
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    made = Bed(release, folder)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=RELEASES, ids=lambda r: r.name)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Start a cluster for a whole file, with every kind of node: ``transports.Cluster``."""
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


@pytest.fixture(params=TRANSPORTS)
def slurm(cluster: Cluster, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """Return the client for each transport."""
    monkeypatch.setenv("PATH", str(cluster.bin), prepend=":")
    return cluster.ask(request.param)
