"""Recorded steps of nvidia-mig-parted and its answers: `aliquot mig-parted` answers the same."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import migparted
from support.migparted import Answer, Scenario, Step

STEPS = migparted.steps()
ANSWERS = msgspec.json.decode(migparted.ANSWERS.read_bytes(), type=dict[str, list[Answer]])
GUIDE = Path(__file__).resolve().parents[3] / "docs/coming-from/mig-parted.md"


def test_every_step_has_an_answer() -> None:
    assert {s.name: len(s.steps) for s in STEPS.scenarios} == {name: len(found) for name, found in ANSWERS.items()}


def test_every_decision_is_taken_and_is_in_the_guide() -> None:
    taken = {step.decision for scenario in STEPS.scenarios for step in scenario.steps if step.decision}
    assert taken == STEPS.decisions.keys()
    assert [text for text in STEPS.decisions.values() if text not in GUIDE.read_text()] == []


@pytest.mark.parametrize("scenario", STEPS.scenarios, ids=lambda scenario: scenario.name)
def test_the_original_and_ours(
    scenario: Scenario, state: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Exit code, stdout, files and geometry are equal unless a documented decision differs. A decision changes the exit
    # code or the output, and changes nothing on the node unless the exit code is 0.
    migparted.write_files(Path())
    control.start(state, scenario.node, migparted.NODE)
    monkeypatch.setenv("ALIQUOT_SIM", migparted.NODE)
    node = SimClient(state, migparted.NODE)
    wrong: list[str] = []
    before = then = Answer(0, "", migparted.geometry(node))
    try:
        for number, (step, theirs) in enumerate(zip(scenario.steps, ANSWERS[scenario.name], strict=True), 1):
            ours = _take(step, node, capsys)
            # After a decision the nodes differ until a step changes one of them.
            apart = (ours.gpus, theirs.gpus) == (before.gpus, then.gpus) and before.gpus != then.gpus
            same = (ours.code, ours.out) == (theirs.code, theirs.out) and (ours.gpus == theirs.gpus or apart)
            if same == bool(step.decision):
                wrong.append(f"{number}. {step.run}, {step.decision}\n   theirs {theirs}\n   ours   {ours}")
            if step.decision and (ours.code != step.ours or (ours.code and ours.gpus != before.gpus)):
                wrong.append(f"{number}. {step.run}: {ours} by decision {step.decision!r}")
            before, then = ours, theirs
    finally:
        node.close()
        control.stop(state, migparted.NODE)
    assert not wrong, "\n".join(wrong)


def _take(step: Step, node: SimClient, capsys: pytest.CaptureFixture[str]) -> Answer:
    variables, words = step.words
    if words[0] == "sim":
        migparted.outside(node, words[1:])
        return Answer(0, "", migparted.geometry(node))
    if words[0] == "cat":
        found = Path(words[1])
        return Answer(0, found.read_text() if found.exists() else "", migparted.geometry(node))
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        code = main(["mig-parted", *words])
    return Answer(code, capsys.readouterr().out, migparted.geometry(node))
