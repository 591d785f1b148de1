"""Simulated nodes for the command line, with a server per module. The command runs in-process and as a program."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver

from . import hints

SOURCE = str(Path(__file__).resolve().parents[3] / "src")


class Result(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Decoded stdout, a JSON object."""
        return msgspec.json.decode(self.out, type=dict[str, Any])


Run = Callable[..., Result]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the module's state directory and stop its server at the end."""
    directory = str(tmp_path_factory.mktemp("state"))
    yield directory
    control.stop(directory)


@pytest.fixture(autouse=True)
def clean(state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the caller's environment and set the module's state directory."""
    for name in [
        n for n in os.environ if n.startswith(("ALIQUOT_", "MIG_PARTED_", "VGPU_DM_")) and n != "ALIQUOT_CACHE_DIR"
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("ALIQUOT_STATE_DIR", state)
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the command in this process and checks every next step that it prints."""

    def call(*words: str) -> Result:
        capsys.readouterr()
        code = main(list(words))
        out, err = capsys.readouterr()
        hints.check_output(out, err)
        return Result(code, out, err)

    return call


@pytest.fixture
def program() -> Run:
    """Return a function that runs the command as a separate program."""

    def call(*words: str, stdin: str | bytes | None = None, **environment: str) -> Result:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = forkserver.run(
            [sys.executable, "-m", "aliquot", *words],
            input=data if data is not None else b"",
            capture_output=True,
            env={**os.environ, "PYTHONPATH": SOURCE, **environment},
            timeout=60,
        )
        result = Result(done.returncode, done.stdout.decode(), done.stderr.decode())
        hints.check_output(result.out, result.err)
        return result

    return call


class Sim(NamedTuple):
    """A node whose name is set in ALIQUOT_SIM."""

    name: str
    node: SimClient

    def writes(self) -> list[dict[str, Any]]:
        """Return the logged calls that change something, except manual ones."""
        return [c for c in self.node.calls() if c["call"] in control.WRITE_CALLS and not c.get("hand")]


@pytest.fixture
def a100(state: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    """Start a fresh node ``one`` with one A100-40GB."""
    yield from _node(state, "a100-sxm4-40gb", "one", monkeypatch)


@pytest.fixture
def dgx(state: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    """Start a fresh node ``dgx`` with eight A100-40GB."""
    yield from _node(state, "dgx-a100", "dgx", monkeypatch)


@pytest.fixture
def mixed(state: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    """Start a node ``mixed`` with an A30, an H100, an RTX PRO 6000 and a T4."""
    template = "a30,h100-80gb-hbm3,rtx-pro-6000-blackwell-server-edition,tesla-t4"
    yield from _node(state, template, "mixed", monkeypatch)


def _node(state: str, template: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sim]:
    control.start(state, template, name)
    monkeypatch.setenv("ALIQUOT_SIM", name)
    node = SimClient(state, name)
    yield Sim(name, node)
    node.close()
    control.stop(state, name)


Host = Callable[..., Sim]


@pytest.fixture
def host(state: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """Return a function that starts a node, ``host`` by default, from a template. The node stops with the test."""
    nodes: list[SimClient] = []

    def start(template: str, name: str = "host") -> Sim:
        control.start(state, template, name)
        monkeypatch.setenv("ALIQUOT_SIM", name)
        nodes.append(SimClient(state, name))
        return Sim(name, nodes[-1])

    yield start
    for node in nodes:
        name = node.name
        node.close()
        control.stop(state, name)
