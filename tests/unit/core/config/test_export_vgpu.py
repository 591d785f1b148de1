"""vGPUs and passthrough in exports, generated files and checkpoints: a written file reads back as the same request."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.config.export import export, export_native
from aliquot.core.config.formats.checkpoint import checkpoint, restore
from aliquot.core.config.formats.yaml_writer import to_json, to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.config.generate_vgpu import generate_native, generate_vgpu_configs, has_vgpus
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.actions import DestroyVgpu, SetFunctions, SetPassthrough
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import GpuVirtualization, HostVirtualization, Inventory, Mig
from aliquot.core.planner.plan import plan
from aliquot.errors import BlockedError, ConfigError
from support.factory import inventory, with_instances
from unit.core.config.helpers import desired_for
from unit.core.config.vgpu_nodes import board, changed, hosting, make_gpu, node, with_vgpus

A2 = hosting(node("A2", "T4", "A100-SXM4-40GB"), enabled=True)
MIG_ON = Mig(True, "enabled", "enabled")


def entries(before: Inventory) -> Any:
    document: Any = export_native(before)
    return document["configs"]["current"]


def test_each_share_in_our_format() -> None:
    before = with_vgpus(with_vgpus(A2, 0, "A2-4Q", "A2-4C", "A2-4Q"), 1, "T4-8Q")
    before = changed(before, 2, passthrough=True)
    assert entries(before) == [
        {"gpus": {"pci": ["0000:10:00.0"]}, "vgpu": {"NVIDIA A2-4C": 1, "NVIDIA A2-4Q": 2}},
        {"gpus": {"pci": ["0000:11:00.0"]}, "vgpu": {"GRID T4-8Q": 1}},
        {"gpus": {"pci": ["0000:12:00.0"]}, "passthrough": True},
    ]


def test_functions_without_vgpus_and_mixed_size() -> None:
    before = changed(hosting(node("A2", "A2", "A40"), enabled=True), 1, virtual_mixed_size=True)
    before = with_vgpus(changed(before, 2, virtual_mixed_size=True), 2, "A40-8Q", "A40-4Q")
    assert [{k: v for k, v in e.items() if k != "gpus"} for e in entries(before)] == [
        {"vgpu": "none"},
        {"vgpu": "none", "mixed-size": True},
        {"vgpu": {"NVIDIA A40-4Q": 1, "NVIDIA A40-8Q": 1}, "mixed-size": True},
    ]
    assert entries(hosting(node("A2", "T4"))) == []


def test_mig_with_functions_on_stays_mig() -> None:
    assert entries(changed(A2, 2, mig=MIG_ON))[-1]["mig"] == {}


def test_mig_parted_sees_no_gpu_in_passthrough() -> None:
    before = changed(hosting(node("A100-SXM4-40GB", "A100-SXM4-40GB", "A30")), 1, passthrough=True)
    document: Any = export(before)
    assert document["mig-configs"]["current"] == [
        {"device-filter": ["0x20B010DE", "0x20B710DE"], "devices": [0, 2], "mig-enabled": False, "mig-devices": {}}
    ]
    document = export(changed(hosting(node("A30", "H100 80GB HBM3")), 1, passthrough=True))
    assert document["mig-configs"]["current"] == [
        {"device-filter": "0x20B710DE", "devices": "all", "mig-enabled": False, "mig-devices": {}}
    ]


def test_generated_names() -> None:
    before = hosting(node("A2", "T4", "A100-SXM4-40GB"))
    assert has_vgpus(before)
    document: Any = generate_native(before)
    configs = document["configs"]
    mig: Any = generate(before)
    assert list(configs)[: len(mig["mig-configs"])] == list(mig["mig-configs"])
    assert configs["all-disabled"] == [{"gpus": "all", "mig": "disabled"}]
    assert configs["all-1g.5gb"] == [{"gpus": "all", "mig": {"1g.5gb": 7}}]
    assert configs["all-vgpu-A2-4Q"] == [{"gpus": {"product": "NVIDIA A2"}, "vgpu": {"NVIDIA A2-4Q": 4}}]
    assert configs["all-vgpu-A100X-1-5C"][0]["vgpu"] == {"GRID A100X-1-5C": 7}
    few = changed(hosting(node("A2")), 0, virtual_total=8)
    only: Any = generate_native(few)
    assert only["configs"]["all-vgpu-A2-1Q"] == [{"gpus": "all", "vgpu": {"NVIDIA A2-1Q": 8}}]
    assert "all-disabled" not in only["configs"]


def test_names_only_where_the_vgpu_driver_is_at_work() -> None:
    assert not has_vgpus(node("A2"))
    assert not has_vgpus(hosting(inventory()))
    for manager in (None, False):
        assert not has_vgpus(msgspec.structs.replace(node("A2"), host=HostVirtualization(vgpu_manager=manager)))


@pytest.mark.parametrize("table", vgpu.tables(), ids=lambda table: table.name)
def test_every_generated_name_is_a_request_for_the_node(table: vgpu.VgpuTable) -> None:
    before = hosting(msgspec.structs.replace(node(), gpus=(board(table), board(make_gpu("A2"), 1))))
    text = to_yaml(generate_native(before))
    document: Any = generate_native(before)
    names = [name for name in document["configs"] if name.startswith("all-vgpu-")]
    assert names or all(t.id is None for t in table.types)
    for name in names:
        wanted = desired_for(text, before, name)
        assert wanted.failures == (), name
        assert wanted.gpus


def test_names_of_vgpu_device_manager() -> None:
    # As in NVIDIA's default file: a config has the name of its type, and default is half of each GPU twice.
    one: Any = generate_vgpu_configs(hosting(node("A2")))
    assert one["vgpu-configs"]["A2-4Q"] == [{"devices": "all", "vgpu-devices": {"A2-4Q": 4}}]
    assert one["vgpu-configs"]["default"] == [{"devices": "all", "vgpu-devices": {"A2-8Q": 2}}]
    assert "A2-3B" not in one["vgpu-configs"], "its id is unknown"
    several: Any = generate_vgpu_configs(hosting(node("A2", "A100-SXM4-40GB")))
    assert several["vgpu-configs"]["A2-4Q"] == [
        {"device-filter": "0x25B610DE", "devices": "all", "vgpu-devices": {"A2-4Q": 4}}
    ]
    assert [entry["vgpu-devices"] for entry in several["vgpu-configs"]["default"]] == [{"A2-8Q": 2}, {"A100X-20C": 2}]
    with pytest.raises(BlockedError, match="no vGPU type"):
        generate_vgpu_configs(hosting(inventory()))


@pytest.mark.parametrize("table", vgpu.tables(), ids=lambda table: table.name)
def test_every_config_of_vgpu_device_manager_is_a_request_for_the_node(table: vgpu.VgpuTable) -> None:
    if all(t.id is None for t in table.types):
        return
    before = hosting(msgspec.structs.replace(node(), gpus=(board(table),)))
    document: Any = generate_vgpu_configs(before)
    text = to_yaml(document)
    for name in document["vgpu-configs"]:
        wanted = desired_for(text, before, name)
        assert (wanted.failures, len(wanted.gpus)) == ((), 1), name


def test_a_checkpoint_without_vgpus_is_mig_parteds_to_the_byte() -> None:
    for before in (inventory("a100-sxm4-40gb*2", "tesla-t4"), hosting(node("A100-SXM4-40GB", "A2"))):
        assert list(checkpoint(before)) == ["Version", "MigState"]


def test_a_checkpoint_tells_every_share() -> None:
    before = with_vgpus(A2, 0, "A2-4Q", "A2-4C")
    before = changed(before, 2, passthrough=True)
    document: Any = checkpoint(before)
    assert document["MigState"] == {"Devices": None}
    first, second, third = document["Aliquot"]["Gpus"]
    assert first == {
        "PCI": "0000:10:00.0", "UUID": before.gpus[0].uuid, "Passthrough": False, "Functions": 16, "MixedSize": False,
        "Scheduler": None, "Bound": (),
        "Vgpus": (
            {"Function": "0000:10:00.4", "Type": "NVIDIA A2-4Q", "TypeID": 746, "Placement": None,
             "UUID": "00000000-0000-5000-8000-000000000000",
                 "Parameters": ""},
            {"Function": "0000:10:00.5", "Type": "NVIDIA A2-4C", "TypeID": 754, "Placement": None,
             "UUID": "00000000-0000-5000-8000-000000000001",
                 "Parameters": ""},
        ),
    }  # fmt: skip
    assert (second["Functions"], second["Vgpus"]) == (None, None)
    assert third["Passthrough"] is True


def back(before: Inventory, now: Inventory | None = None) -> Desired:
    return restore(to_json(checkpoint(before)), now or before)


def test_restoring_asks_for_the_same_functions_and_uuids() -> None:
    before = changed(with_vgpus(A2, 0, "A2-4Q", "A2-4C"), 2, passthrough=True)
    empty = hosting(node("A2", "T4", "A100-SXM4-40GB"))
    for now in (before, empty):
        wanted = back(before, now)
        assert wanted.failures == ()
        first, second, third = sorted(wanted.gpus, key=lambda w: w.pci)
        assert [(v.function, v.type, v.uuid) for v in first.vgpus or ()] == [
            (v.function, v.type, v.uuid) for v in before.gpus[0].vgpus
        ]
        assert (first.functions, first.mixed_size, first.passthrough, first.vfio_bound) == (True, False, False, ())
        assert (second.vgpus, second.functions, second.passthrough) == ((), None, False)
        assert (third.passthrough, third.instances, third.mig) == (True, None, None)


def test_restoring_says_that_others_had_none() -> None:
    before = with_vgpus(hosting(node("A2", "A40")), 0)
    before = changed(hosting(node("A2", "A40")), 0, passthrough=True)
    _, other = back(before, with_vgpus(hosting(node("A2", "A40"), enabled=True), 1, "A40-8Q")).gpus
    assert (other.vgpus, other.functions, other.passthrough) == ((), False, False)


def test_mig_and_vgpus_of_one_gpu_are_one_request() -> None:
    before = with_vgpus(changed(A2, 2, mig=MIG_ON), 2, "A100X-1-5C")
    request = next(w for w in back(before).gpus if w.pci == "0000:12:00.0")
    assert (request.mig, request.instances, [v.type for v in request.vgpus or ()]) == (True, (), ["GRID A100X-1-5C"])


def test_placements_that_no_order_of_creations_reaches_are_not_requested() -> None:
    def mixed(*places: int) -> Inventory:
        before = with_vgpus(changed(hosting(node("A40"), enabled=True), 0, virtual_mixed_size=True), 0, *["A40-8Q"] * 2)
        vgpus = zip(before.gpus[0].vgpus, places, strict=True)
        return changed(before, 0, vgpus=tuple(msgspec.structs.replace(v, placement=place) for v, place in vgpus))

    def placements(before: Inventory) -> list[int | None]:
        desired = back(before)
        assert (plan(before, desired).blockers, plan(before, desired).actions) == ((), ())
        empty = plan(changed(before, 0, vgpus=()), desired)
        assert (empty.blockers, len(empty.actions)) == ((), 2)
        return [v.placement for v in desired.gpus[0].vgpus or ()]

    first, second, third = make_gpu("A40").by_name["A40-8Q"].mixed[:3]
    assert placements(mixed(first, second)) == [first, second]
    assert placements(mixed(first, third)) == [None, None], "one between them is gone"


def test_the_placement_in_a_gpu_instance_is_not_requested() -> None:
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    before = with_vgpus(changed(hosting(node(name), enabled=True), 0, mig=MIG_ON), 0, "DC-1-8Q")
    vgpu_in_instance = msgspec.structs.replace(before.gpus[0].vgpus[0], gpu_instance=1, placement=16)
    (gpu,) = back(changed(before, 0, vgpus=(vgpu_in_instance,))).gpus
    assert [v.placement for v in gpu.vgpus or ()] == [None], "the driver chooses it, as the planner knows"


def test_a_gpu_that_moved_has_its_functions_at_the_same_distance() -> None:
    before = with_vgpus(hosting(node("A2"), enabled=True), 0, *["A2-1Q"] * 5)
    (gpu,) = hosting(node("T4", "A2")).gpus[1:]
    moved = msgspec.structs.replace(gpu, uuid=before.gpus[0].uuid)
    (request,) = back(before, msgspec.structs.replace(before, gpus=(moved,))).gpus
    assert [v.function for v in request.vgpus or ()] == [
        "0000:11:00.4", "0000:11:00.5", "0000:11:00.6", "0000:11:00.7", "0000:11:01.0",
    ]  # fmt: skip


def test_what_cannot_be_restored_here() -> None:
    before = with_vgpus(hosting(node("A2"), enabled=True), 0, "A2-4Q")
    gone = back(before, msgspec.structs.replace(before, gpus=()))
    assert [f.rule for f in gone.failures] == ["NO_SUCH_GPU"]
    other = changed(hosting(node("A16")), 0)
    assert [f.rule for f in back(before, other).failures] == ["WRONG_CARD"]
    few = changed(before, 0, virtual_addresses=("0000:10:00.7",))
    assert [(f.rule, "0000:10:00.4" in f.message) for f in back(before, few).failures] == [("NO_FUNCTION", True)]


def test_a_gpu_whose_uuid_is_not_known_is_found_by_its_address_and_another_there_is_not() -> None:
    before = with_vgpus(hosting(node("A2"), enabled=True), 0, "A2-4Q")
    assert [len(w.vgpus or ()) for w in back(before, changed(before, 0, uuid="")).gpus] == [1]
    assert [f.rule for f in back(before, changed(before, 0, uuid="GPU-another")).failures] == ["NO_SUCH_GPU"]


def reported(**fields: object) -> dict[str, object]:
    return {"PCI": "0000:10:00.0", **fields}


VGPU = {"Function": "0000:10:00.4", "Type": "NVIDIA A2-4Q", "TypeID": 746}


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ([{}], "not a checkpoint of MIG state"),
        ([reported(Functions="x")], "not a checkpoint of MIG state"),
        ([reported(), reported()], "twice"),
        ([reported(Vgpus=[VGPU, VGPU])], "twice"),
        ([{"PCI": "here"}], "'here' is not a PCI address"),
        ([{"PCI": "0000:1F:00.0"}], "not a PCI address as the kernel writes it"),
        ([reported(Vgpus=[VGPU | {"Function": "../x"}])], "not a PCI address"),
        ([reported(Bound=["x"])], "not a PCI address"),
        ([reported(Vgpus=[VGPU | {"UUID": "../../etc"}])], "is invalid"),
        ([reported(Functions=-1)], "is invalid"),
        ([reported(Passthrough=True, Vgpus=[VGPU])], "is invalid"),
    ],
)
def test_what_is_no_checkpoint(gpus: object, words: str) -> None:
    document = {"Version": "v1", "MigState": {"Devices": None}, "Aliquot": {"Version": "v1", "Gpus": gpus}}
    with pytest.raises(ConfigError) as raised:
        restore(msgspec.json.encode(document).decode(), A2)
    assert words in " ".join((raised.value.brief, *raised.value.details))
    document["Aliquot"] = {"Version": "v9", "Gpus": []}
    with pytest.raises(ConfigError, match="version 'v9'"):
        restore(msgspec.json.encode(document).decode(), A2)


def test_vgpus_on_gpu_instances_are_read_back() -> None:
    cut = with_instances(node("H100 80GB HBM3"), 0, "1g.10gb@0", "1g.10gb@1", "2g.20gb@2")
    before = with_vgpus(hosting(cut, enabled=True), 0, "H100XM-1-10C", "H100XM-2-20C", "H100XM-1-10C")
    behind = zip(before.gpus[0].vgpus, (1, 3, 2), strict=True)
    before = changed(before, 0, vgpus=tuple(msgspec.structs.replace(v, gpu_instance=i) for v, i in behind))
    assert entries(before)[0]["vgpu"] == {"NVIDIA H100XM-1-10C": 2, "NVIDIA H100XM-2-20C": 1}
    for wanted in (desired_for(to_yaml(export_native(before)), before), back(before)):
        made = plan(before, wanted)
        assert (wanted.failures, made.changes, made.blockers) == ((), False, ())


@st.composite
def hosts(draw: st.DrawFn) -> Inventory:
    """Draw a node whose GPUs are shared in any way that types and counts allow."""
    tables = draw(st.lists(st.sampled_from(vgpu.tables()), min_size=1, max_size=4))
    before = hosting(
        msgspec.structs.replace(node(), gpus=tuple(board(t, n) for n, t in enumerate(tables))), enabled=True
    )
    for n, table in enumerate(tables):
        makable = [t for t in table.types if t.id is not None and not t.mig_backed]
        kind = draw(st.sampled_from(["nothing", "vgpus", "passthrough"]))
        if kind == "passthrough":
            before = changed(before, n, passthrough=True)
        elif kind == "vgpus" and makable:
            first = draw(st.sampled_from(makable))
            alike = [t.name for t in makable if t.fb_mib == first.fb_mib]
            functions = len((before.gpus[n].virtual or GpuVirtualization()).functions) or 16
            names = draw(st.lists(st.sampled_from(alike), max_size=min(first.max, functions)))
            before = with_vgpus(before, n, *names)
    return before


@given(hosts())
def test_what_is_written_is_read_back(before: Inventory) -> None:
    wanted = {w.pci: w for w in desired_for(to_yaml(export_native(before)), before).gpus} if entries(before) else {}
    restored = {w.pci: w for w in back(before).gpus}
    for gpu in before.gpus:
        there = Counter((v.type_id, v.type) for v in gpu.vgpus)
        if gpu.pci in wanted and not gpu.mig.enabled and not gpu.passthrough:
            assert Counter((v.type_id, v.type) for v in wanted[gpu.pci].vgpus or ()) == there
        assert bool(gpu.pci in wanted and wanted[gpu.pci].passthrough) == gpu.passthrough
        for desired_gpu in (wanted.get(gpu.pci), restored.get(gpu.pci)):
            made = plan(before, Desired((desired_gpu,) if desired_gpu else ()))
            assert (made.changes, made.blockers) == (False, ())
        exact = {(v.function, v.type, v.uuid) for v in restored[gpu.pci].vgpus or ()} if gpu.pci in restored else set()
        assert exact == {(v.function, v.type, v.uuid) for v in gpu.vgpus}


def test_plugin_parameters_that_all_vgpus_have_and_a_file_can_name() -> None:
    def exported(*texts: str) -> Any:
        before = with_vgpus(A2, 0, *["A2-4Q"] * len(texts))
        vgpus = [msgspec.structs.replace(v, parameters=p) for v, p in zip(before.gpus[0].vgpus, texts, strict=True)]
        (gpu, *others) = before.gpus
        gpus = (msgspec.structs.replace(gpu, vgpus=tuple(vgpus)), *others)
        return entries(msgspec.structs.replace(before, gpus=gpus))[0].get("vgpu-parameters")

    assert exported("disable_vnc=1,enable_uvm=0", "disable_vnc=1,enable_uvm=0") == {
        "disable_vnc": True,
        "enable_uvm": False,
    }
    assert [exported(""), exported("enable_uvm=1", ""), exported("loglevel=5")] == [None] * 3


def test_a_scheduler_other_than_the_default_is_exported_and_comes_back_from_a_checkpoint() -> None:
    def node(scheduler: str) -> Inventory:
        before = with_vgpus(A2, 0, "A2-4Q")
        (gpu, *others) = before.gpus
        assert gpu.virtual is not None
        gpu = msgspec.structs.replace(gpu, virtual=msgspec.structs.replace(gpu.virtual, scheduler=scheduler))
        return msgspec.structs.replace(before, gpus=(gpu, *others))

    assert [entries(node(s))[0].get("scheduler") for s in ("", "best-effort", "equal-share,2ms")] == [
        None,
        None,
        "equal-share,2ms",
    ]
    document: Any = checkpoint(node("fixed-share"))
    assert document["Aliquot"]["Gpus"][0]["Scheduler"] == "fixed-share"


def test_a_checkpoint_restores_what_a_new_request_may_not_have() -> None:
    # Another program set CUDA's parameter on a type without CUDA. It is there, so it comes back.
    before = with_vgpus(A2, 0, "A2-4A")
    (gpu, *others) = before.gpus
    vgpus = tuple(msgspec.structs.replace(v, parameters="enable_uvm=1") for v in gpu.vgpus)
    before = msgspec.structs.replace(before, gpus=(msgspec.structs.replace(gpu, vgpus=vgpus), *others))
    assert plan(before, back(before)).blockers == ()
    assert plan(A2, restore(to_json(checkpoint(before)), A2)).blockers == ()


def test_a_checkpoint_passes_a_gpu_through_whatever_idle_vgpus_it_has() -> None:
    before = changed(A2, 0, passthrough=True)
    made = plan(with_vgpus(A2, 0, "A2-4Q"), restore(to_json(checkpoint(before)), A2))
    assert made.blockers == ()
    assert [type(a) for a in made.actions] == [DestroyVgpu, SetFunctions, SetPassthrough]
