"""A saved plan may have been edited. It is applied only if the planner computes the same plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from .conftest import Run, Sim

Document = dict[str, Any]
REQUEST = ("--gpu", "0", "--mig", "3g.20gb,1g.5gb")
SAVED = Path("plan.json")


@pytest.fixture
def busy(a100: Sim) -> Sim:
    """Create three 1g.5gb (7, 8, 11) on one A100. The first is held."""
    a100.node.set_mode(0, True)
    for start in (0, 1, 4):
        a100.node.create(0, "1g.5gb", start)
    a100.node.hold(0, 7, pid=8812)
    return a100


def _saved(run: Run, *words: str) -> Document:
    """Save a plan that destroys 8 and 11, keeps 7 and creates a 3g.20gb."""
    assert run("plan", *(words or REQUEST), "--out", str(SAVED)).code == 10
    return msgspec.json.decode(SAVED.read_bytes(), type=Document)


def _write(document: Document) -> None:
    SAVED.write_bytes(msgspec.json.encode(document))


def _destroy_the_kept_one(plan: Document) -> None:
    plan["actions"].insert(0, plan["actions"][0] | {"instance": 7, "placement": "0:1"})


def _create_elsewhere(plan: Document) -> None:
    plan["actions"][-1]["placement"] = "0:4"


def _create_nowhere(plan: Document) -> None:
    plan["actions"][-1]["placement"] = "a:b"


def _drop_an_action(plan: Document) -> None:
    del plan["actions"][1]


def _drop_all_actions(plan: Document) -> None:
    plan["actions"] = []


def _turn_them_around(plan: Document) -> None:
    plan["actions"].reverse()


def _set_the_mode(plan: Document) -> None:
    plan["actions"].append({"action": "set-mode", "gpu": plan["actions"][0]["gpu"], "reason": "", "mode": "disabled"})


def _without_a_compute_instance(plan: Document) -> None:
    plan["actions"][-1]["compute"] = []


def _other_figures(plan: Document) -> None:
    plan["kept"] = 5


CHANGES: tuple[tuple[Callable[[Document], None], str], ...] = (
    (_destroy_the_kept_one, 'only in the file: {"action":"destroy",'),
    (_create_elsewhere, '"placement":"0:4"'),
    (_create_nowhere, '"placement":"a:b"'),
    (_drop_an_action, 'missing in the file: {"action":"destroy",'),
    (_drop_all_actions, 'missing in the file: {"action":"create",'),
    (_turn_them_around, "another order"),
    (_set_the_mode, 'only in the file: {"action":"set-mode",'),
    (_without_a_compute_instance, '"compute":[]'),
    (_other_figures, "kept 5"),
)


@pytest.mark.parametrize(("change", "named"), CHANGES, ids=lambda each: getattr(each, "__name__", ""))
def test_a_plan_that_the_planner_did_not_make_is_refused(
    change: Callable[[Document], None], named: str, busy: Sim, run: Run
) -> None:
    document = _saved(run)
    change(document)
    _write(document)
    found = run("apply", str(SAVED))
    assert (found.code, found.out) == (20, ""), found
    assert found.err.startswith("blocked[PLAN_MISMATCH]: "), found
    assert named in found.err
    assert "next" in found.err
    assert busy.writes() == []


def test_a_desired_state_that_the_planner_cannot_plan_is_refused(busy: Sim, run: Run) -> None:
    document = _saved(run)
    (gpu,) = document["desired"]["gpus"]
    gpu["instances"][0]["profile_id"] = 4711
    _write(document)
    found = run("apply", str(SAVED))
    assert found.code == 20, found
    assert "internal error" not in found.err
    assert busy.writes() == []


POLICIES: tuple[Document, ...] = (
    {"held": "../../x"},
    {"held": ""},
    {"timeout_s": -1},
    {"held": "wait", "timeout_s": -0.5},
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_policy_that_cannot_exist_is_invalid(policy: Document, busy: Sim, run: Run) -> None:
    document = _saved(run)
    document["policy"] |= policy
    _write(document)
    found = run("apply", str(SAVED))
    assert (found.code, found.out) == (2, ""), found
    assert "policy" in found.err
    assert busy.writes() == []


TEXTS = ("a\nblocked[MOVED]: x", "\x1b[31mred\x1b[0m", "\x9b2J", "\u202egnp", "a\rb")


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
@pytest.mark.parametrize("where", ["name", "reason", "notes", "profile"])
def test_texts_with_control_characters_are_invalid(where: str, text: str, busy: Sim, run: Run) -> None:
    document = _saved(run)
    if where == "name":
        document["desired"]["name"] = text
    elif where == "notes":
        document["notes"] = [text]
    else:
        document["actions"][0][where] = text
    _write(document)
    found = run("apply", str(SAVED))
    assert (found.code, found.out) == (2, ""), found
    assert text not in found.err
    assert "control characters" in found.err
    assert busy.writes() == []


def test_a_plan_with_blockers_is_invalid(busy: Sim, run: Run) -> None:
    document = _saved(run)
    document["blockers"] = [{"rule": "HELD", "message": "no"}]
    _write(document)
    found = run("apply", str(SAVED))
    assert found.code == 2, found
    assert busy.writes() == []


def test_other_reasons_change_nothing(busy: Sim, run: Run) -> None:
    # Another version of Aliquot may word the reasons differently.
    document = _saved(run)
    for action in document["actions"]:
        action["reason"] = "because"
    _write(document)
    assert run("apply", str(SAVED)).code == 0


def test_a_holder_that_came_meanwhile_stops_it_at_that_instance(busy: Sim, run: Run) -> None:
    _saved(run)
    busy.node.hold(0, 8, pid=8813)
    found = run("apply", str(SAVED))
    assert found.code == 20, found
    assert "8813" in found.err
    assert busy.writes() == []


def test_a_holder_that_left_what_is_kept_changes_nothing(busy: Sim, run: Run) -> None:
    _saved(run)
    busy.node.release(0, 7)
    assert run("apply", str(SAVED)).code == 0


@pytest.mark.parametrize("policy", ["wait", "force"])
def test_a_plan_that_ends_holders_is_carried_out(policy: str, busy: Sim, run: Run) -> None:
    _saved(run, "--gpu", "0", "--mig", "7g.40gb", "--policy", policy, "--timeout", "1")
    if policy == "wait":
        busy.node.release(0, 7)
    assert run("apply", str(SAVED)).code == 0


@pytest.mark.parametrize(
    "text", ["[" * 200_000, '{"kind": "Plan", "more": ' + "[" * 200_000, '{"gpus": ' + "9" * 100_000 + "}"]
)
def test_a_plan_that_nests_or_counts_without_end_is_invalid(run: Run, busy: Sim, text: str) -> None:
    SAVED.write_text(text)
    refused = run("apply", str(SAVED))
    assert refused.code == 2
    assert "plan.json is not a plan" in refused.err


@pytest.mark.skipif(os.geteuid() != 0, reason="root makes links of other users")
def test_a_link_of_another_user_is_not_written_through(run: Run, busy: Sim) -> None:
    # In a folder like /tmp a link could make root write any file. The kernel's own protection is off by default.
    target = Path("target")
    target.write_text("precious")
    SAVED.symlink_to(target)
    assert run("plan", *REQUEST, "--out", str(SAVED), "--force").code == 10, "a link of this user is followed"
    target.write_text("precious")
    os.lchown(SAVED, 65534, 65534)
    refused = run("plan", *REQUEST, "--out", str(SAVED))
    assert refused.code == 20
    assert "it is a link that user 65534 made" in refused.err
    assert target.read_text() == "precious"
