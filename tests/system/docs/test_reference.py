"""The pages that are generated from the code are up to date."""

from __future__ import annotations

import sys
from typing import get_args

import pytest

from aliquot.core.model.desired import PlanRule

from .pages import HOUSE

sys.path.append(str(HOUSE))  # tools is not in the tests' path
from tools import build_docs
from tools.docs import crds, errors, refusals, states


@pytest.mark.slow
@pytest.mark.parametrize("name", build_docs.PAGES)
def test_it_is_current(name: str) -> None:
    assert (HOUSE / name).read_text() == build_docs.PAGES[name](), f"stale: python tools/build_docs.py {name}"


def test_every_rule_of_the_planner_is_reported() -> None:
    reported = {case.rule for case in refusals.CASES} | refusals.UNSHOWN.keys()
    assert len(reported) >= 30
    assert set(get_args(PlanRule)) - reported <= {"ONE_NODE", "RAMFB", "DISPLAY"}, "those rules are reported for VMs"


def test_an_extra_that_is_not_installed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "libvirt", None)
    monkeypatch.delitem(sys.modules, "aliquot.libvirt.binding", raising=False)
    assert errors.classes()


def test_a_new_rule_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "UNSHOWN", {})
    monkeypatch.setattr(errors, "UNSHOWN", {})
    monkeypatch.setattr(errors, "CASES", ())
    monkeypatch.setattr(errors, "machines", dict)
    with pytest.raises(AssertionError, match="HELD"):
        errors.page()


@pytest.mark.parametrize("code", ["NOT_DONE", "TRANSIENT"])
def test_a_code_that_is_set_or_passed_to_a_function_would_be_missed(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "CASES_OF_ONE", {k: v for k, v in errors.CASES_OF_ONE.items() if k != code})
    with pytest.raises(AssertionError, match=code):
        errors.page()


def test_a_decision_without_words_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "ENDS", {"_satisfied": "done"})
    with pytest.raises(AssertionError, match="_prepare_and_apply"):
        states.decisions()


def test_an_unexplained_label_would_be_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crds, "MEANINGS", {})
    with pytest.raises(AssertionError, match="CONFIG_LABEL"):
        crds.page()
