"""Summary, button and text of a plan."""

from __future__ import annotations

import msgspec

from aliquot.core.model.placement import Placement
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.dashboard.pages import plan, plan_text
from aliquot.dashboard.view_models import ActionLine, ChangePreview, GpuPicture
from system.dashboard import stub

G = "0000:07:00.0"


def act(verb: str, letter: str, what: str, gpu: str = G, node: str = "n1") -> ActionLine:
    size, _, placement = what.partition(" at ")
    return ActionLine(node, gpu, verb, letter, what, "asked", size if placement else "", placement)


def switch(feature: str, what: str, gpu: str = G, *, on: bool = True) -> ActionLine:
    return ActionLine("n1", gpu, "set", "", what, "asked", feature=feature, on=on)


def preview(*actions: ActionLine, kept: int = 0) -> ChangePreview:
    return ChangePreview("a title", ("n1",), actions=actions, kept=kept)


def test_what_moves_is_reported_to_move() -> None:
    made = preview(
        act("destroy", "c", "2g.10gb at 4:2"),
        act("destroy", "b", "1g.5gb at 2:1"),
        act("create", "f", "3g.20gb at 4:4"),
        act("create", "e", "2g.10gb at 2:2"),
        kept=1,
    )
    assert plan_text.promise(made) == (
        "This will move c (2g.10gb) to slices 2-3, destroy b (1g.5gb on slice 2) and create f (3g.20gb on slices 4-7) "
        "on GPU 0000:07:00.0 of n1. 1 instance stays untouched."
    )
    assert [(a.letter, b.letter) for a, b in plan_text.moves(made.actions)] == [("c", "e")]
    elsewhere = preview(act("destroy", "a", "1g.5gb at 0:1"), act("create", "a", "1g.5gb at 0:1", "0000:0f:00.0"))
    assert plan_text.moves(elsewhere.actions) == (), "another GPU's instance is another instance"


def test_switches_are_reported_as_people_do() -> None:
    on = preview(
        switch("virtual functions", "16 virtual functions on"),
        switch("virtual functions", "32 virtual functions on", "0000:0f:00.0"),
    )
    assert (
        plan_text.promise(on) == "This will enable virtual functions on 2 GPUs of n1. Everything else stays as it is."
    )
    assert plan_text.button(on) == "Enable virtual functions on 2 GPUs"
    mode = preview(switch("MIG mode", "MIG mode enabled"), act("reset", "", "the GPU"))
    assert plan_text.button(mode) == "Enable MIG mode and reset on GPU 0000:07:00.0"
    assert "enable MIG mode and reset the GPU on GPU" in plan_text.promise(mode)


def test_the_way_back_asks_for_the_places_that_were() -> None:
    one, two = (
        DrawnInstance("a", "1g.5gb", Placement.parse("0:1")),
        DrawnInstance("b", "3g.20gb", Placement.parse("4:4")),
    )
    pictures = (
        GpuPicture("n1", G, "GPU 0", 8, (one, two), (one,)),
        GpuPicture("n1", "0000:0f:00.0", "GPU 1", 8, (), (one,), now="empty"),
        GpuPicture("n1", "0000:47:00.0", "GPU 2", 8, (), (one,), now="MIG disabled", mig_disabled=True),
        GpuPicture("n1", "0000:4e:00.0", "GPU 3", 8, (one,), (one,)),
        GpuPicture("n1", "0000:87:00.0", "GPU 4"),
        GpuPicture(
            "n1", "0000:90:00.0", "GPU 5", 8, (one,), (), divided=True
        ),  # the instance was divided, not a whole 1g.5gb
    )
    asked = [
        (gpu, dict(fields)["mig"])
        for gpu, fields in plan.rollback_requests(ChangePreview("a title", ("n1",), pictures))
    ]
    assert asked == [(G, "1g.5gb@0,3g.20gb@4"), ("0000:0f:00.0", "empty"), ("0000:47:00.0", "disabled")]


def test_many_are_counted() -> None:
    same = preview(
        *(
            msgspec.structs.replace(act("create", c, f"A2-4Q on 0000:01:00.{n}"), size="A2-4Q")
            for n, c in enumerate("abcd", 4)
        )
    )
    assert "create 4 x A2-4Q (a, b, c, d)" in plan_text.promise(same)
    mixed = preview(*(act("create", c, f"{n}g.5gb at {n}:1") for n, c in enumerate("abcd", 1)))
    assert "create 4 devices (a, b, c, d)" in plan_text.promise(mixed)


def test_the_text_can_be_pasted() -> None:
    text = plan_text.text(stub.changing())
    assert "\n  1 0000:47:00.0  destroy b 2g.10gb at 4:2  (blocks d)\n" in text
    blocked = plan_text.text(stub.blocked())
    assert "blocked[HELD]: c is held\n  holder  process 4711 (python)\n  nearest that fits: 4g.20gb,2g.10gb" in blocked
    hostile = msgspec.structs.replace(stub.changing(), title=stub.HOSTILE[3], notes=(stub.HOSTILE[1],))
    assert "\x00" not in plan_text.text(hostile)
    assert "\u202e" not in plan_text.text(hostile)
