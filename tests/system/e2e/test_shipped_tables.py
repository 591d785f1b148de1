"""Published named configs, run unchanged on every family that they name: each ends in the promised state."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from aliquot.cli.main import main
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

FOLDER = Path(__file__).resolve().parents[2] / "recorded/mig-parted"
CASES: list[dict[str, Any]] = yaml.load((FOLDER / "expected.yaml").read_text(), yaml.CSafeLoader)["cases"]
NODES = [(node, list(cases)) for node, cases in groupby(sorted(CASES, key=lambda c: c["node"]), lambda c: c["node"])]


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = str(tmp_path_factory.mktemp("state"))
    yield folder
    control.stop(folder)


def shown(node: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["show", "-o", "json", "--sim", node]) == 0
    gpus = msgspec.json.decode(capsys.readouterr().out)["gpus"]
    return [
        geometry_text(geometry(i["profile"] for i in g["instances"]))
        if g["mig"]["current"] == "enabled"
        else "disabled"
        for g in gpus
    ]


@pytest.mark.parametrize(("template", "cases"), NODES, ids=[node for node, _ in NODES])
def test_each_named_config_ends_in_the_geometry_it_promises(
    template: str,
    cases: list[dict[str, Any]],
    state: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("ALIQUOT_STATE_DIR", state)
    node = control.start(state, template)
    machine = SimClient(state, node)
    for case in cases:
        request = ["-f", str(FOLDER / case["file"]), "-c", case["config"], "--sim", node]
        code = main(["apply", *request])
        assert code == 0, (case, capsys.readouterr().err)
        assert shown(node, capsys) == case["want"], case
        assert main(["verify", *request]) == 0, case
        before = len(machine.calls())
        assert main(["apply", *request]) == 0
        again = machine.calls()[before:]
        assert not [c for c in again if c["call"] in control.WRITE_CALLS], "a satisfied desired state caused a write"
    machine.close()
    control.stop(state, node)
