"""Any inventory can be shown. Its pictures cover each GPU once and have correct text alternatives."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Drift, DriftInstance
from aliquot.core.model.structured_text import StructuredText
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.core.planner.verify import verify
from aliquot.core.rendering.vgpu_picture import DrawnVgpu
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.node_strips import strip
from aliquot.dashboard.pages.gpu_view import _odd, gpu_view
from aliquot.dashboard.view_models import ObservedFleet, ObservedNode
from laws.property import strategies, vgpu_strategies
from support.selection import laws
from system.dashboard import stub
from system.dashboard.pagedraw import document
from system.dashboard.stub import StubSource

ANY = laws(60)
replace = msgspec.structs.replace


def drawn(observation: ObservedNode) -> None:
    """Render every page that shows the node."""
    source = StubSource(ObservedFleet((observation,), 1, ready=True))
    document(source, "/")
    document(source, words.path("nodes", observation.name))
    for gpu in observation.inventory.gpus if observation.inventory else ():
        path = words.path("nodes", observation.name, "gpus", gpu.pci)
        document(source, path)
        family = observation.inventory.family(gpu) if observation.inventory and gpu.family and gpu.mig.capable else None
        for profile in family.profiles[:2] if family else ():
            document(source, f"{path}?want={profile.name.replace('+', '%2B')}")


def covered(bar: pictures.GpuBar) -> None:
    """Assert that the blocks cover the bar without gaps or overlaps."""
    at = 0.0
    for block in bar.blocks:
        assert abs(block.x - at) < 0.02, bar
        at = block.x + block.width
    assert abs(at - 100) < 0.02, bar


@ANY
@given(strategies.cases(size=2), st.sampled_from(["node", *(n for n in stub.HOSTILE if "/" not in n)]))
def test_any_divided_gpu_can_be_shown(case: tuple[Inventory, Desired], name: str) -> None:
    inventory, desired = case
    drift = verify(inventory, desired)
    observation = ObservedNode(name, replace(inventory, node=name), stub.NOW, drift=drift, usage=stub.usage(inventory))
    drawn(observation)
    for gpu in inventory.gpus:
        found = find_fragmentation(inventory, gpu)
        shown = gpu_view(observation, inventory, gpu, found)
        covered(shown.bar)
        if found:
            for instance in gpu.instances:
                assert f"{instance.profile} on {words.place(instance.place)}" in shown.bar.sentence
            count = inventory.family(gpu).memory_slices
            hatched = sum(round(b.width / 100 * count) for b in shown.bar.blocks if b.kind == pictures.HOLE)
            kind = pictures.BROKEN if found.lost else pictures.FREE
            free = sum(round(b.width / 100 * count) for b in shown.bar.blocks if b.kind == kind)
            assert (", in pieces" in shown.bar.sentence) == bool(found.lost and free)
            assert (hatched, hatched + free) == (len(found.stranded), len(found.free))
    assert len(strip(inventory).paths) <= 7


@ANY
@given(vgpu_strategies.nodes())
def test_any_shared_gpu_can_be_shown(case: tuple[Inventory, Desired]) -> None:
    inventory, _ = case
    observation = ObservedNode("vm-host", replace(inventory, node="vm-host"), stub.NOW)
    drawn(observation)
    for gpu in inventory.gpus:
        shown = gpu_view(observation, inventory, gpu).bar
        covered(shown)


def test_shares_without_a_place_stand_side_by_side() -> None:
    shown = [DrawnVgpu("a", "A2-4Q", ("f", "u"), 4, held=True), DrawnVgpu("b", "A2-4Q", ("g", "v"), 4)]
    bar = pictures.memory("GPU 0", 16, shown)
    assert [(b.x, b.width, b.kind) for b in bar.blocks] == [(0, 25, "held"), (25, 25, "idle"), (50, 50, "free")]
    assert bar.sentence == "A2-4Q, 4 GiB, held; A2-4Q, 4 GiB, idle; 8 of 16 GiB free."
    assert [t.text for t in bar.ticks][:3] == ["0 GiB", "1", "2"]
    beyond = pictures.memory("GPU 0", 8, [*shown, DrawnVgpu("c", "A2-4Q", ("h", "w"), 4)])
    assert sum(b.width for b in beyond.blocks) == 100, "what does not fit the table's region is not drawn beyond it"


def test_numbers_and_ages_have_units() -> None:
    assert [words.span(s) for s in (-3, 0, 59, 60, 7199, 86400, 200000)] == [
        "0 s",
        "0 s",
        "59 s",
        "1 min",
        "1 h",
        "1 day",
        "2 days",
    ]
    assert [words.memory(n) for n in (None, 0, 512, 1024, 4864, 40960)] == [
        "not measured",
        "0 MiB",
        "512 MiB",
        "1 GiB",
        "4.8 GiB",
        "40 GiB",
    ]
    assert words.ranges((0, 1, 2, 5, 7)) == "0-2, 5, 7"
    assert words.percent(0.374) == "37 % busy"
    assert words.listed(["a"]) == "a"
    assert words.listed([]) == ""
    extra = DriftInstance("3g.20gb", "4:4", 3, ("1c.3g.20gb",))
    assert words.drift(Drift("p", "extra", "text", instance=extra)) == (
        "GPU p: 3g.20gb on slices 4-7 (id 3, 1c.3g.20gb) should not be there"
    )
    filled = DriftInstance("3g.20gb", "4:4", 3, ("3g.20gb",))
    assert words.drift(Drift("p", "extra", "text", instance=filled)) == (
        "GPU p: 3g.20gb on slices 4-7 (id 3) should not be there"
    )
    assert words.drift(Drift("p", "mode", "MIG mode is disabled")) == "MIG mode is disabled"
    assert words.clean("a\u202eb\nc") == "a\ufffdb\ufffdc"
    assert len(words.clean("x" * 300)) == 120


def test_placements_in_sentences_are_shown_as_slices() -> None:
    blocked = StructuredText("blocks ", ("4g.20gb", Placement(0, 4)))
    moved = StructuredText.joined(", ", (StructuredText("moves to ", Placement(6, 1)), blocked))
    assert moved == "moves to 6:1, blocks 4g.20gb at 0:4"
    assert words.sentence(moved, 300) == "moves to slice 6, blocks 4g.20gb on slices 0-3"
    held = StructuredText(moved, "; held by \u202ejob")
    assert words.sentence(held, 300).endswith(" on slices 0-3; held by \ufffdjob")
    assert words.sentence(held, 20) == "moves to slice 6, b…"
    assert words.sentence("3g.20gb at 4:4", 300) == "3g.20gb at 4:4"


def test_only_the_instance_that_should_not_be_there_is_marked() -> None:
    gpu = stub.dgx().gpus[6]
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    extra = DriftInstance(ordered[1].profile, ordered[1].placement, ordered[1].id)
    drift = (Drift(gpu.pci, "extra", "text", instance=extra), Drift(gpu.pci, "mode", "text"))
    assert _odd(gpu, drift) == ("b",)
