"""The journal's record of a change: small, sufficient, and open for fields of other versions."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

import support.vgpufactory as factory
from aliquot.core.engine.ports import FORMAT, JournalEntry
from aliquot.core.engine.recorded_change import RecordedChange, change_of, encode_change, record_change
from aliquot.core.model import catalog
from aliquot.core.model.actions import Action, SetPassthrough
from aliquot.core.model.desired import Desired
from aliquot.core.model.encoding import encode
from aliquot.core.model.inventory import GpuInstance, Inventory
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from laws.oracle import mig_nodes
from laws.property import strategies
from support.selection import laws
from unit.core.planner.sharing import RTX

A100 = catalog.family("a100-40gb")
H100 = catalog.family("h100-80gb-sxm")


@laws(100)
@given(strategies.cases(size=2))
def test_it_says_what_was_there_before(case: tuple[Inventory, Desired]) -> None:
    inventory, desired = case
    change = record_change(plan(inventory, desired), inventory)
    again = msgspec.json.decode(encode_change(change), type=RecordedChange)
    assert again == change
    before = again.inventory_before(inventory)
    assert before is not None
    pcis = [gpu.pci for gpu in inventory.gpus]
    assert make_restore_point(before, pcis) == make_restore_point(inventory, pcis)
    assert again.explains(inventory)


def test_it_is_small() -> None:
    gpus = [mig_nodes.gpu(H100, [("1g.10gb", n) for n in range(7)], pci=f"0000:{n:02x}:00.0") for n in range(8)]
    requests = [each for gpu in gpus for each in mig_nodes.desired_state(H100, ["3g.40gb", "3g.40gb"], gpu.pci).gpus]
    inventory = mig_nodes.node(*gpus)
    made = plan(inventory, Desired(tuple(requests)))
    assert len(made.actions) > 8 * 7
    assert len(encode_change(record_change(made, inventory))) < 10_000 < len(encode(made))


def test_the_form_is_what_is_written_here() -> None:
    # A change of this text is a new format: versions in use read this one.
    inventory = mig_nodes.node(mig_nodes.gpu(A100, [("3g.20gb", 4)], []))
    change = record_change(plan(inventory, mig_nodes.desired_state(A100, ["2g.10gb"])), inventory)
    text = msgspec.json.decode(encode_change(change))
    assert text.pop("fingerprint") == inventory.fingerprint
    assert text == {
        "desired": [
            {
                "pci": mig_nodes.PCI,
                "mig": True,
                "instances": [
                    {
                        "profile_id": 14,
                        "name": "2g.10gb",
                        "compute": [1],
                        "start": None,
                        "compute_starts": None,
                        "loose": False,
                    }
                ],
                "source": "",
                "vgpus": None,
                "functions": None,
                "mixed": None,
                "passthrough": None,
                "bound": None,
                "scheduler": None,
                "restoring": False,
            }
        ],
        "before": [
            {
                "gpu": mig_nodes.PCI,
                "mig": "enabled",
                "instances": [{"profile_id": 9, "placement": "4:4", "profile": "3g.20gb", "compute": [[2, "0:3"]]}],
            }
        ],
        "gpus": [{"gpu": mig_nodes.PCI, "instances": [[14, "4:2"]]}],
        "actions": 2,
    }


def test_fields_of_a_newer_version_are_ignored() -> None:
    inventory = mig_nodes.node(mig_nodes.gpu(A100, [("3g.20gb", 4)], []))
    made = plan(inventory, mig_nodes.desired_state(A100, ["2g.10gb"]))
    text = msgspec.json.decode(encode_change(record_change(made, inventory))) | {"newer": 1}
    text["gpus"][0]["newer"] = {}
    change = change_of(JournalEntry("begin", "r", change=msgspec.Raw(msgspec.json.encode(text)), format=FORMAT))
    assert change is not None
    assert change.matches_plan(made)
    assert not change.matches_plan(msgspec.structs.replace(made, actions=made.actions[:-1]))


def test_a_gpu_that_is_gone_leaves_nothing_to_go_back_to() -> None:
    two = mig_nodes.node(mig_nodes.gpu(A100, []), mig_nodes.gpu(A100, [], pci="0000:08:00.0"))
    change = record_change(plan(two, mig_nodes.desired_state(A100, ["2g.10gb"])), two)
    assert change.inventory_before(mig_nodes.node(two.gpus[0])) is None
    assert change.inventory_before(two) is not None


def test_a_gpu_is_passed_through_whole_or_by_its_functions() -> None:
    # Only a whole GPU counts as a change of the GPU's driver.
    gpu: dict[str, Any] = {"gpu": mig_nodes.PCI, "reason": "requested"}
    inventory = mig_nodes.node(mig_nodes.gpu(A100, []))
    made = plan(inventory, mig_nodes.desired_state(A100, []))
    actions: tuple[Action, ...] = (
        SetPassthrough(**gpu, on=True),
        SetPassthrough(**gpu, on=False, function="0000:07:00.4"),
    )
    (change,) = record_change(msgspec.structs.replace(made, actions=actions), inventory).gpus
    assert change.passthrough == (True,)


@pytest.mark.parametrize("modes", [(True, True), (True, False), (False, msgspec.UNSET), (msgspec.UNSET,)])
def test_the_modes_of_gpu_instances_come_back_as_a_way_back_knows_them(modes: tuple[bool | msgspec.UnsetType]) -> None:
    # Where they differ or are unknown, the way back leaves them as they are.
    instances = (GpuInstance(3 + n, "1g.24gb+gfx", 47, f"{3 * n}:3", mixed_size=m) for n, m in enumerate(modes))
    inventory = factory.node(factory.replace(factory.gpu(RTX, mig=True), instances=tuple(instances)))
    before = record_change(plan(inventory, Desired(())), inventory).inventory_before(inventory)
    assert before is not None
    assert make_restore_point(before, [factory.PCI]) == make_restore_point(inventory, [factory.PCI])
