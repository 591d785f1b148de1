"""Pages show the placements in the planner's sentences as slices. Encoded, the sentences are the command line's."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.encoding import encode
from aliquot.core.model.inventory import Holder, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.core.planner.plan import plan
from aliquot.dashboard import formatting as words
from aliquot.dashboard.change_requests import FitInstance
from aliquot.dashboard.local import preview_requests, previews
from aliquot.dashboard.local.node_access import NodeObservation
from aliquot.dashboard.pages import capacity
from aliquot.dashboard.pages import plan as plan_page
from aliquot.dashboard.view_models import ChangePreview
from support import factory


def node(*instances: str, held: str = "") -> Inventory:
    """Build an A100 with these instances. ``held`` is the placement of the held one."""
    made = factory.with_instances(factory.inventory("a100-sxm4-40gb"), 0, *instances)
    holders = (Holder("process", "4711", "python"),)
    cut = tuple(
        msgspec.structs.replace(i, held=True, holders=holders) if i.placement == held else i
        for i in made.gpus[0].instances
    )
    return msgspec.structs.replace(made, gpus=(msgspec.structs.replace(made.gpus[0], instances=cut),))


def room(seen: Inventory, profile: str) -> ChangePreview:
    request = FitInstance(node="n", gpu=seen.gpus[0].pci, profile=profile)
    return preview_requests.preview(request, {"n": NodeObservation(seen)}, None, lambda step, _: step)


def test_the_reasons_of_actions() -> None:
    made = room(node("1g.5gb@1", "2g.10gb@4"), "4g.20gb")
    assert [plan_page.step(a, many=False).reason for a in made.actions] == [
        "moves to slice 6, blocks 4g.20gb on slices 0-3",
        'requested by "one more 4g.20gb"',
        "moved from slice 1",
    ]
    assert made.actions[0].reason == "moves to 6:1, blocks 4g.20gb at 0:4", "the text for a ticket is unchanged"


def test_the_instance_that_keeps_its_place() -> None:
    seen = node("3g.20gb@0")
    wanted = adhoc([seen.gpus[0].pci], ["1c.3g.20gb*2"], seen)
    made = plan(seen, wanted)
    shown = [words.sentence(a.reason, 300) for a in made.actions]
    assert shown
    assert all(" the kept 3g.20gb on slices 0-3" in text for text in shown), shown


def test_the_instances_that_block_a_request() -> None:
    seen = node("3g.20gb@4", held="4:4")
    blocker = plan(seen, adhoc([seen.gpus[0].pci], ["7g.40gb"], seen)).blockers[0]
    assert blocker.message.endswith("1 instance is held (3g.20gb at 4:4)")
    shown = plan_page.obstacle(previews.obstacle("n", blocker, lambda step, _: step))
    assert shown.message.endswith("1 instance is held (3g.20gb on slices 4-7)")


def test_what_would_make_room() -> None:
    made = room(node("1g.5gb@0", "1g.5gb@1"), "7g.40gb")
    would = plan_page.obstacle(made.obstacles[-1])
    assert would.rule == "WOULD_COST"
    assert "Destroy 1g.5gb on slice 0 and 1g.5gb on slice 1 to make room for 7g.40gb." in would.message


def test_why_a_profile_does_not_fit() -> None:
    seen = node("3g.20gb@0", "3g.20gb@4", held="4:4")
    gpu = seen.gpus[0]
    found = find_fragmentation(seen, gpu)
    assert found is not None
    why = capacity.advice(seen, gpu, found, "4g.20gb")
    assert why is not None
    assert why.sentence == "4g.20gb does not fit now: every placement is taken (slices 0-3 by 3g.20gb on slices 0-3)."


def test_other_processes_get_the_words() -> None:
    seen = node("1g.5gb@1", "2g.10gb@4")
    made = plan(seen, adhoc([seen.gpus[0].pci], ["4g.20gb,2g.10gb"], seen))
    read = msgspec.json.decode(encode(made), type=Plan)
    assert read == made
    assert [a.reason for a in read.actions] == [str(a.reason) for a in made.actions]
    assert {type(a.reason) for a in read.actions} == {str}


def test_an_encoder_that_does_not_know_structured_texts_fails() -> None:
    seen = node("1g.5gb@1", "2g.10gb@4")
    made = plan(seen, adhoc([seen.gpus[0].pci], ["4g.20gb,2g.10gb"], seen))
    with pytest.raises(TypeError, match="StructuredText"):
        msgspec.json.encode(made)


def test_a_copy_of_an_action_keeps_the_values_of_its_reason() -> None:
    seen = node("1g.5gb@1", "2g.10gb@4")
    made = plan(seen, adhoc([seen.gpus[0].pci], ["4g.20gb,2g.10gb"], seen))
    copied = msgspec.structs.replace(made.actions[0], gpu="other")
    assert words.sentence(copied.reason, 300) == words.sentence(made.actions[0].reason, 300)
    assert "slice" in words.sentence(copied.reason, 300)
