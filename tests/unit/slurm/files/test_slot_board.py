"""The slot board: a constant number of records, each at the index of its slot, and every other capability closed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError
from aliquot.slurm.conf.hosts import expand
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.files import slot_board as board
from aliquot.slurm.files.job_devices import GresChoice
from support.factory import inventory, with_instances
from support.slurmstate import with_minors

CAPS = "/dev/nvidia-caps/nvidia-cap"


def node(*per_gpu: tuple[str, ...], product: str = "a100-sxm4-40gb") -> Inventory:
    """Build a node with one GPU for each tuple of instances."""
    found = inventory(*[product] * len(per_gpu), enabled=True)
    for index, instances in enumerate(per_gpu):
        if instances:
            found = with_instances(found, index, *instances)
    return with_minors(found)


def types(found: Inventory) -> list[str]:
    return [device.type.removeprefix("a100_") for device in board.slot_board(found).devices]


def opened(found: Inventory) -> list[set[str]]:
    """Return the files of each record except its marker, with host lists expanded."""
    return [{file for word in device.files[1:] for file in expand(word)} for device in board.slot_board(found).devices]


def test_each_instance_is_at_the_slot_where_it_starts() -> None:
    assert types(node(("3g.20gb@0", "2g.10gb@4", "1g.5gb@6"), ("7g.40gb@0",))) == [
        *("3g.20gb", "pad", "pad", "pad", "2g.10gb", "pad", "1g.5gb"),
        *("7g.40gb", "pad", "pad", "pad", "pad", "pad", "pad"),
        "pad",
    ]


def test_compute_instances_of_one_gpu_instance_have_a_slot_each() -> None:
    found = node(("3g.20gb@4:1c.3g.20gb;1c.3g.20gb",))
    assert types(found) == ["pad", "pad", "pad", "pad", "1c.3g.20gb", "1c.3g.20gb", "pad", "pad"]


def test_two_compute_instances_at_one_slice_are_refused() -> None:
    found = node(("3g.20gb@4:1c.3g.20gb;1c.3g.20gb",))
    gpu = found.gpus[0]
    twins = tuple(replace(each, placement="0:1") for each in gpu.instances[0].compute_instances)
    same = replace(found, gpus=(replace(gpu, instances=(replace(gpu.instances[0], compute_instances=twins),)),))
    with pytest.raises(BlockedError, match="slot 4 of GPU 0 would be"):
        board.slot_board(same)


def test_the_markers_are_in_the_order_of_the_slots_however_they_are_sorted() -> None:
    lines = gres.lines("n1", board.slot_board(node(*[("7g.40gb@0",)] * 16)))
    first = [line.partition("File")[2].partition("=")[2].split(",")[0].split()[0] for line in lines]
    assert len(first) == 16 * 7 + 1
    assert first == sorted(first) == [f"/dev/aliquot/slot{n:03}" for n in range(113)]


def test_the_lines_name_the_marker_the_gpu_and_the_two_capabilities_of_an_instance() -> None:
    lines = gres.lines("n1", board.slot_board(node(("3g.20gb@4",), ())))
    assert lines[4] == (
        "NodeName=n1 Name=gpu Type=a100_3g.20gb "
        f"MultipleFiles=/dev/aliquot/slot004,/dev/nvidia0,{CAPS}12,{CAPS}13 Flags=nvidia_gpu_env"
    )
    assert lines[5] == "NodeName=n1 Name=gpu Type=pad File=/dev/aliquot/slot005 Flags=nvidia_gpu_env"
    assert lines[14] == (
        "NodeName=n1 Name=gpu Type=pad "
        f"MultipleFiles=/dev/aliquot/slot014,/dev/nvidia1,{CAPS}[1-11,14-272] Flags=nvidia_gpu_env"
    )


def test_a_whole_gpu_is_at_its_first_slot_and_its_capabilities_are_closed() -> None:
    found = inventory("a100-sxm4-40gb")
    assert types(found) == ["a100", "pad", "pad", "pad", "pad", "pad", "pad", "pad"]
    assert opened(found)[0] == {"/dev/nvidia0"}
    assert {f"{CAPS}{n}" for n in (1, 2, 3, 137)} <= opened(found)[7]


def test_gpus_of_other_nodes_and_their_instances_are_closed() -> None:
    found = node(("3g.20gb@4",), ("3g.20gb@0",))
    devices = board.slot_board(found, GresChoice((found.gpus[0].pci,))).devices
    assert len(devices) == 8
    closed = {file for word in devices[7].files for file in expand(word)}
    assert {"/dev/nvidia1", f"{CAPS}147", f"{CAPS}148"} <= closed


def test_a_board_with_a_gpu_that_fell_off_the_bus_is_refused() -> None:
    # NVML may name neither its product nor its address, and the slots of all later GPUs would move.
    found = node(("7g.40gb@0",), ("3g.20gb@0",))
    lost = replace(found, gpus=(replace(found.gpus[0], lost=True), found.gpus[1]))
    with pytest.raises(BlockedError, match=r"GPU 0 \([0-9a-f:.]+\) fell off the bus") as refused:
        board.slot_board(lost)
    assert (refused.value.code, refused.value.next_step) == ("MISSING_GPU", "aliquot show")
    other = GresChoice((found.gpus[1].pci,))
    assert board.slot_board(lost, other) == board.slot_board(found, other)


def test_a_board_with_a_gpu_that_the_host_does_not_have_is_refused() -> None:
    found = node(("7g.40gb@0",), ("3g.20gb@0",))
    gone = replace(found, gpus=found.gpus[1:])
    with pytest.raises(BlockedError, match=r"GPU \S+ is not on this host"):
        board.slot_board(gone, GresChoice(tuple(gpu.pci for gpu in found.gpus)))


def test_the_order_is_that_of_the_pci_addresses_not_of_the_indices() -> None:
    found = node(("7g.40gb@0",), ("3g.20gb@0",))
    turned = replace(found, gpus=(replace(found.gpus[1], index=0), replace(found.gpus[0], index=1)))
    assert types(turned) == types(found)


def test_lines_of_a_board_are_recognized() -> None:
    assert board.is_board(gres.lines("n1", board.slot_board(node(("7g.40gb@0",)))))
    assert not board.is_board(("NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0",))
    assert not board.is_board(())


def test_only_the_slots_of_a_change_and_the_last_record_differ() -> None:
    before = gres.lines("n1", board.slot_board(node(("3g.20gb@0", "3g.20gb@4"), ("7g.40gb@0",))))
    after = gres.lines("n1", board.slot_board(node(("3g.20gb@0", "3g.20gb@4"), ("3g.20gb@0", "3g.20gb@4"))))
    assert board.changed_slots(before, after) == (7, 11, 14)
    assert board.changed_slots(before, before) == ()
    assert board.changed_slots(before, after[:-1]) == tuple(range(15))


@pytest.mark.parametrize(
    ("product", "count"), [("a100-sxm4-40gb", 7), ("a30-24gb", 4), ("rtx-pro-6000-96gb", 10), ("tesla-t4", 1)]
)
def test_the_slots_of_a_gpu_follow_from_its_family(product: str, count: int) -> None:
    found = inventory(product)
    assert board.slots(found, found.gpus[0]) == count


@st.composite
def geometries(draw: st.DrawFn) -> tuple[str, ...]:
    """Draw instances of an A100 that do not overlap."""
    profiles = catalog.family("a100-40gb").by_name
    taken, found = 0, []
    for _ in range(draw(st.integers(0, 7))):
        fitting = [
            (name, place)
            for name, p in profiles.items()
            if "+" not in name
            for place in p.placements
            if not place.mask & taken
        ]
        if not fitting:
            break
        name, place = draw(st.sampled_from(fitting))
        taken |= place.mask
        found.append(f"{name}@{place.start}")
    return tuple(found)


@given(st.lists(geometries(), min_size=1, max_size=3))
def test_every_layout_has_the_same_records_and_closes_every_capability_once(per_gpu: list[tuple[str, ...]]) -> None:
    found = node(*per_gpu)
    files = opened(found)
    assert len(files) == 7 * len(per_gpu) + 1
    assert [d.files[0] for d in board.slot_board(found).devices] == [
        board.marker("/dev", slot) for slot in range(len(files))
    ]
    caps = [file for each in files for file in each if file.startswith(CAPS)]
    assert len(caps) == len(set(caps)) == 2 + 135 * len(per_gpu)
    assert {f"/dev/nvidia{n}" for n in range(len(per_gpu))} <= set().union(*files)
