"""Verdicts: a sentence and a next step as values, joined once for the condition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from aliquot.core.model.plan import Blocker
from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.virtual_machines.harvester import mig_layout
from aliquot.kubernetes.virtual_machines.harvester.reasons import MAX_CHARACTERS, ObjectVerdict, blocker_verdict


def test_a_verdict_is_joined_and_cut_where_a_condition_is_written() -> None:
    verdict = blocker_verdict(Blocker("NO_INSTANCE", "no room", step="aliquot show"))
    assert verdict == ObjectVerdict(reason_word("NO_INSTANCE"), "no room", "aliquot show")
    assert verdict.message == "no room | next: aliquot show"
    long = ObjectVerdict("Held", "x" * MAX_CHARACTERS, "stop it").message
    assert (len(long), long[-1]) == (MAX_CHARACTERS, "…")


def test_another_next_step_takes_the_place_of_the_first(monkeypatch: Any) -> None:
    monkeypatch.setattr(mig_layout, "untracked_instances", lambda found, gpu: ("one",))
    monkeypatch.setattr(mig_layout, "describe_instance", str)
    physical = cast(Any, SimpleNamespace(mig=SimpleNamespace(name="n1-000008000"), gpu=object()))
    message = mig_layout.explain_conflict(
        physical, ObjectVerdict(reason_word("NO_INSTANCE"), "no room", "aliquot show")
    ).message
    assert message.startswith("no room; not created through this object and left alone: one | next: kubectl annotate")
    assert "aliquot show" not in message
