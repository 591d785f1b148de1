"""The contract of sources for one simulated node (library and direct) and for all simulated nodes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from aliquot.sim import lifecycle as control
from system.dashboard import heres
from system.dashboard.heres import HereBed
from system.dashboard.source_contract import SourceContract


@pytest.fixture
def state_dir(tmp_path: object) -> Iterator[str]:
    path = f"{tmp_path}/state"
    yield path
    control.stop(path)


class TestDirectly(SourceContract):
    @pytest.fixture
    def bed(self, state_dir: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HereBed]:
        monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
        with heres.bed(state_dir) as made:
            yield made


@pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler for the shim")
class TestByTheLibrary(SourceContract):
    @pytest.fixture
    def bed(self, state_dir: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[HereBed]:
        monkeypatch.setenv("ALIQUOT_BACKEND", "shim")
        with heres.bed(state_dir) as made:
            yield made


class TestAllNodes(SourceContract):
    @pytest.fixture
    def bed(self, state_dir: str) -> Iterator[HereBed]:
        control.start(state_dir, "a30", "another")
        with heres.bed(state_dir, fleet=True) as made:
            yield made
