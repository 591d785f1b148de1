"""Long-running commands enable garbage collection; commands that end at once do not."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from aliquot.cli.framework.dispatch import run
from aliquot.errors import BlockedError
from aliquot.foundation import http_server as serve
from aliquot.kubernetes.controller import main as controller
from aliquot.kubernetes.node_agent import agent_run
from aliquot.metrics import host_exporter as host
from aliquot.slurm.client import connect as opening
from aliquot.slurm.controller import main as slurm
from aliquot.slurm.controller import settings_parser as settings_file

LASTING = {
    "agent": (["agent", "--node-name", "n"], agent_run, "run_agent"),
    "VM agent": (["agent", "--devices", "--node-name", "n"], agent_run, "run_agent"),
    "controller": (["controller"], controller, "run"),
    "Slurm's controller": (["slurm", "controller", "-f", "FILE"], slurm, "run"),
}


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """Undo ``gc.freeze``, so that other tests of this process find their own garbage."""
    yield
    gc.unfreeze()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the settings of a Slurm controller, with a Slurm client that returns nothing."""
    path = tmp_path / "settings.yaml"
    path.write_text("")
    monkeypatch.setattr(opening, "open_client", nullcontext)
    monkeypatch.setattr(settings_file, "load", lambda text, source: type("Stub", (), {"listen": ""}))
    return str(path)


@pytest.mark.parametrize(("words", "module", "name"), LASTING.values(), ids=LASTING)
def test_what_lasts_collects_its_garbage(
    words: list[str], module: object, name: str, settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def stub(*_: object, **__: object) -> int:
        seen.append(gc.isenabled())
        return 0

    monkeypatch.setattr(module, name, stub)
    assert run([settings if word == "FILE" else word for word in words]) == 0
    assert seen == [True]
    assert gc.get_freeze_count() > 1000


def test_figures_that_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def stub(*_: object) -> None:
        seen.append(gc.isenabled())
        raise BlockedError("enough")

    monkeypatch.setattr(serve, "HttpServer", stub)
    assert run(["metrics", "--listen", "127.0.0.1:0"]) == 20
    monkeypatch.setattr(host, "HostExporter", stub)
    assert run(["metrics"]) == 20
    assert seen == [True, False], "a single run does not enable garbage collection"
