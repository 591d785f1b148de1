"""Pictures at memory slice resolution, on GPUs with 4, 8 and 12 memory slices."""

from __future__ import annotations

import pytest

from aliquot.cli.framework import color as colour
from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.cli.framework.views import plan_view as plan_views
from aliquot.core.model import catalog
from aliquot.core.model.actions import (
    Action,
    ComputePart,
    Create,
    CreateCompute,
    Destroy,
    DestroyCompute,
    Reset,
    SetMode,
)
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory, Mig, MigMode
from aliquot.core.model.plan import Blocker, Plan, Policy, make_plan
from aliquot.core.model.structured_text import GpuName, GpuOption, StructuredText
from aliquot.core.rendering import mig_picture

PCI = "0000:41:00.0"
HOLDER = Holder("process", "4711", "python3")


def gpu(family: str, *places: tuple[str, str], held: int = -1, enabled: bool = True) -> Gpu:
    """Return a GPU with instances (profile name, placement). The instance at index ``held`` is held."""
    table = catalog.family(family)
    instances = []
    for n, (name, placement) in enumerate(places):
        profile = table.by_name[name]
        slots = f"0:{profile.compute_slices}"
        whole = (ComputeInstance(0, name, profile.default_compute.id, slots, f"MIG-{n}"),)
        holders = (HOLDER,) if n == held else ()
        instances.append(GpuInstance(n + 1, name, profile.id, placement, n == held, holders, compute_instances=whole))
    mode: MigMode = "enabled" if enabled else "disabled"
    mig = Mig(True, mode, mode)
    return Gpu(PCI, "GPU-x", 0, "NVIDIA X", family=family, mig=mig, instances=tuple(instances))


@pytest.mark.parametrize(
    ("family", "places", "ruler", "letters"),
    [
        ("a30-24gb", (("2g.12gb", "2:2"), ("1g.6gb", "0:1")), "0 1 2 3", "a . b b"),
        ("a100-40gb", (("1g.5gb", "0:1"), ("3g.20gb", "4:4"), ("1g.5gb", "2:1")), "0 1 2 3 4 5 6 7", "a . b . c c c c"),
        (
            "rtx-pro-6000-96gb",
            (("1g.24gb", "9:3"), ("2g.48gb", "0:6")),
            " 0  1  2  3  4  5  6  7  8  9 10 11",
            " a  a  a  a  a  a  .  .  .  b  b  b",
        ),
    ],
)
def test_letters_stand_under_their_slices(
    family: str, places: tuple[tuple[str, str], ...], ruler: str, letters: str
) -> None:
    one = gpu(family, *places)
    table = catalog.family(family)
    column = draw.width([mig_picture.title(one)])
    assert draw.ruler(mig_picture.title(one), table, column) == f"GPU 0  {PCI}  X  memory slice  {ruler}"
    row = draw.row("  now", mig_picture.current_instances(one), table, column, False)
    assert row == f"{'  now':<{column}}{' ' * len('memory slice  ')}{letters}"


def test_every_placement_of_every_family_can_be_drawn() -> None:
    for name in catalog.family_names():
        table = catalog.family(name)
        for profile in table.profiles:
            for place in profile.placements:
                row = draw.row(
                    "", mig_picture.current_instances(gpu(name, (profile.name, str(place)))), table, 0, False
                )
                assert row.split().count("a") == place.size, (name, profile.name, place)
                assert len(row.split()) == table.memory_slices


PARTS = (ComputePart("3g.20gb", 2),)
DESTROY = Destroy(gpu=PCI, reason="idle", instance=2, profile="1g.5gb", profile_id=19, placement="1:1")
CREATE = Create(gpu=PCI, reason="requested", profile="3g.20gb", profile_id=9, placement="4:4", compute=PARTS)


def plan_of(*actions: Action) -> Plan:
    return make_plan("n", "f", Desired(()), actions, policy=Policy(), unchanged=1)


def picture(one: Gpu, *actions: Action) -> list[str]:
    return plan_views.text(plan_of(*actions), Inventory("n", (one,)), False).splitlines()


def test_a_plan_is_drawn_with_numbered_reasons() -> None:
    one = gpu("a100-40gb", ("1g.5gb", "0:1"), ("1g.5gb", "1:1"), held=0)
    assert picture(one, DESTROY, CREATE) == [
        "GPU 0  0000:41:00.0  X                   memory slice  0 1 2 3 4 5 6 7",
        "  now      1g.5gb:2  (a held)                          a b . . . . . .",
        "  planned  3g.20gb:1,1g.5gb:1  (a held)                a . . . c c c c",
        "   1  destroy  b  1g.5gb at 1:1   idle",
        "   2  create   c  3g.20gb at 4:4  requested",
        "",
        "keep 1, destroy 1, create 1",
    ]


def test_modes_resets_and_compute_instances_are_reported() -> None:
    one = gpu("a100-40gb", ("3g.20gb", "0:4"))
    lines = picture(
        one,
        DestroyCompute(gpu=PCI, reason="requested", instance=1, compute_instance=0, profile="3g.20gb"),
        CreateCompute(gpu=PCI, reason="requested", instance=1, profile="1c.3g.20gb", profile_id=0),
    )
    assert lines[3:] == [
        "   1  destroy  a  3g.20gb (compute instance)     requested",
        "   2  create   a  1c.3g.20gb (compute instance)  requested",
        "",
        "keep 1, destroy 0, create 0, make 2 compute instance changes",
    ]
    enable = SetMode(gpu=PCI, reason="requested", mode="enabled")
    off = picture(gpu("a100-40gb", enabled=False), enable, Reset(gpu=PCI, reason="requested"), CREATE)
    assert off[1] == "  now      MIG disabled"
    assert off[2].split() == ["planned", "3g.20gb:1", *"....aaaa"]
    assert off[3:5] == [
        "   1  set         MIG mode enabled  requested",
        "   2  reset       the GPU           requested",
    ]
    assert off[-1] == "keep 1, destroy 0, create 1, set MIG mode of 1 GPU, reset GPU 0000:41:00.0"
    gone = picture(gpu("a100-40gb", ("1g.5gb", "0:1")), SetMode(gpu=PCI, reason="requested", mode="disabled"))
    assert gone[2] == "  planned  MIG disabled"


def test_a_blocker_reads_as_the_style_asks() -> None:
    blocker = Blocker(
        rule="HELD",
        text=f"GPU {PCI} cannot take 7g.40gb: 1 instance is held",
        slices=(0, 1),
        holders=(Holder("job", "8812"),),
        suggestion="3g.20gb,2g.10gb",
        step="aliquot show",
    )
    blocked = Plan(node="n", fingerprint="f", desired=Desired(()), blockers=(blocker,))
    assert plan_views.blockers(blocked).splitlines() == [
        "blocked[HELD]: GPU 0000:41:00.0 cannot take 7g.40gb: 1 instance is held",
        "  slices   0 1",
        "  holder   job 8812",
        "  nearest that fits: 3g.20gb,2g.10gb",
        "  next     aliquot show",
    ]


def test_equal_blockers_are_one_and_those_without_a_gpu_list_none() -> None:
    def read(*blockers: Blocker) -> list[str]:
        return plan_views.blockers(Plan(node="n", fingerprint="f", desired=Desired(()), blockers=blockers)).splitlines()

    first, second = (
        Blocker(
            "HELD",
            StructuredText(GpuName(pci, " "), "is held"),
            gpu=pci,
            step=StructuredText("aliquot plan ", GpuOption(pci), " --mig 1g.5gb"),
        )
        for pci in (PCI, "0000:42:00.0")
    )
    nowhere = Blocker("MODE", "nothing can be done")
    assert read(first, nowhere, second, nowhere) == [
        "blocked[HELD]: each of 2 GPUs is held",
        "  GPUs     0000:41:00.0 0000:42:00.0",
        "  next     aliquot plan --gpu 0000:41:00.0 --gpu 0000:42:00.0 --mig 1g.5gb",
        "blocked[MODE]: nothing can be done",
    ]
    assert read(second)[0] == "blocked[HELD]: GPU 0000:42:00.0 is held"


def test_a_next_command_that_counts_its_gpus_together_is_for_each_of_them() -> None:
    made = tuple(
        Blocker(
            "PLACEMENT",
            StructuredText("x.yaml:3: ", GpuName(pci), " is full"),
            gpu=pci,
            step=StructuredText("aliquot plan ", GpuOption(pci, counts_together=True), " --remove 1g.5gb"),
        )
        for pci in (PCI, "0000:42:00.0")
    )
    blocked = Plan(node="n", fingerprint="f", desired=Desired(()), blockers=made)
    assert plan_views.blockers(blocked).splitlines() == [
        "blocked[PLACEMENT]: x.yaml:3: each of 2 GPUs is full",
        "  GPUs     0000:41:00.0 0000:42:00.0",
        "  next     aliquot plan --gpu 0000:41:00.0 --remove 1g.5gb     and so for each of these GPUs",
    ]
    assert len(plan_views.blockers(blocked, each=True).splitlines()) == 4


def test_a_text_of_another_process_is_not_searched_for_the_gpu() -> None:
    made = tuple(Blocker("HELD", f"GPU {pci} is held", gpu=pci) for pci in (PCI, "0000:42:00.0"))
    blocked = Plan(node="n", fingerprint="f", desired=Desired(()), blockers=made)
    assert len(plan_views.blockers(blocked).splitlines()) == 2


def test_colour_appears_only_where_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert colour.paint("x", colour.RED, True) == "\x1b[31mx\x1b[0m"
    assert colour.paint("x", colour.RED, False) == "x"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR")
    assert not colour.wanted()
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert colour.wanted()
    monkeypatch.setenv("TERM", "dumb")
    assert not colour.wanted()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colour.wanted()
    one = gpu("a100-40gb", ("1g.5gb", "0:1"), held=0)
    row = draw.row("", mig_picture.current_instances(one), catalog.family("a100-40gb"), 0, True)
    assert "\x1b[33ma\x1b[0m" in row
    tinted = plan_views.text(plan_of(DESTROY, CREATE), Inventory("n", (one,)), True)
    assert "\x1b[31mdestroy\x1b[0m" in tinted
    assert "\x1b[32mcreate\x1b[0m" in tinted
