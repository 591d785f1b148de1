"""vGPUs and passthrough in the native format: their meaning for each product, and refusals."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from aliquot.core.config.select.named_config import mode_only
from aliquot.core.model.desired import DesiredGpu, ResolutionFailure
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.errors import ConfigError
from support.factory import inventory
from unit.core.config.helpers import counts, desired_for, faults_of, native
from unit.core.config.vgpu_nodes import node

PRO = "RTX PRO 6000 Blackwell Server Edition"


def only(entry: str, node_inventory: Inventory) -> DesiredGpu:
    wanted = desired_for(native(entry), node_inventory)
    assert wanted.failures == ()
    (request,) = wanted.gpus
    return request


def types(desired_gpu: DesiredGpu) -> Counter[str]:
    return Counter(v.type for v in desired_gpu.vgpus or ())


def blocked(entry: str, node_inventory: Inventory) -> ResolutionFailure:
    wanted = desired_for(native(entry), node_inventory)
    assert wanted.gpus == ()
    (fault,) = wanted.failures
    return fault


@pytest.mark.parametrize("name", ["NVIDIA A2-4Q", "A2-4Q", "id:746", "nvidia-746"])
def test_time_sliced_with_virtual_functions(name: str) -> None:
    request = only(f'gpus: all, vgpu: {{"{name}": 4}}', node("A2"))
    assert (request.mig, request.instances, request.functions, request.mixed_size, request.passthrough) == (
        None,
        (),
        True,
        None,
        None,
    )
    assert {(v.type_id, v.type, v.function, v.uuid) for v in request.vgpus or ()} == {(746, "NVIDIA A2-4Q", "", "")}
    assert types(request) == {"NVIDIA A2-4Q": 4}


def test_types_by_their_numbers() -> None:
    unquoted = only("gpus: all, vgpu: {id:746: 2, nvidia-754: 1}", node("A2"))
    assert types(unquoted) == {"NVIDIA A2-4Q": 2, "NVIDIA A2-4C": 1}
    fault = blocked("gpus: all, vgpu: {id:746: 2}", node("T4"))
    assert (fault.rule, "no vGPU type id:746: NVIDIA A2 has it" in fault.message) == ("WRONG_CARD", True)
    (line,) = faults_of(native("gpus: all, vgpu: {746: 2}"))
    assert "write id:746, or the type's name" in line
    same = desired_for(native("gpus: all, vgpu: {id:746: 2}", "gpus: all, vgpu: {A2-4Q: 2}"), node("A2"))
    assert (len(same.gpus), same.failures) == (1, ())
    other = desired_for(native("gpus: all, vgpu: {id:746: 2}", "gpus: all, vgpu: {A2-4Q: 3}"), node("A2"))
    assert [f.rule for f in other.failures] == ["OVERLAP"]


def test_a_card_without_virtual_functions() -> None:
    request = only('gpus: all, vgpu: {"GRID T4-4Q": 2, T4-4C: 1}', node("T4"))
    assert (request.functions, types(request)) == (None, {"GRID T4-4Q": 2, "GRID T4-4C": 1})


def test_time_sliced_switches_mig_off_where_there_is_mig() -> None:
    assert only("gpus: all, vgpu: {A100X-4C: 10}", node("A100-SXM4-40GB")).mig is False


def test_mig_backed_brings_its_gpu_instances() -> None:
    request = only("gpus: all, vgpu: {H100XM-1-10C: 5, H100XM-2-20C: 1}", node("H100 80GB HBM3"))
    assert (request.mig, request.functions, counts(request)) == (True, True, {"2g.20gb": 1, "1g.10gb": 5})
    assert [len(i.compute) for i in request.instances or ()] == [1] * 6
    assert next(i.name for i in request.instances or ()) == "2g.20gb"


def test_several_share_a_gpu_instance_of_one_size() -> None:
    request = only("gpus: all, vgpu: {DC-1-2Q: 13, DC-1-2B: 11, DC-1-24C: 1, DC-2-48Q: 1}", node(PRO))
    assert counts(request) == {"1g.24gb+gfx": 3, "2g.48gb+gfx": 1}
    assert len(request.vgpus or ()) == 26


def test_a_gpu_instance_that_is_not_full_counts_whole() -> None:
    assert counts(only("gpus: all, vgpu: {DC-1-2Q: 13}", node(PRO))) == {"1g.24gb+gfx": 2}
    assert counts(only("gpus: all, vgpu: {DC-1-2Q: 1, DC-1-3Q: 1}", node(PRO))) == {"1g.24gb+gfx": 2}


def test_none_and_mixed() -> None:
    for text in ("vgpu: none", "vgpu: {}"):
        request = only(f"gpus: all, {text}", node("A2"))
        assert (request.mig, request.instances, request.vgpus, request.functions) == (None, None, (), None)
    request = only("gpus: all, vgpu: {A2-4Q: 1, A2-8Q: 1}, mixed-size: true", node("A2"))
    assert (request.mixed_size, len(request.vgpus or ())) == (True, 2)
    assert only("gpus: all, vgpu: {A2-4Q: 1}, mixed-size: false", node("A2")).mixed_size is False


@pytest.mark.parametrize(
    ("text", "scheduler"), [("fixed-share", "fixed-share"), ('"equal-share, 2.50ms"', "equal-share,2.5ms")]
)
def test_the_scheduler_in_our_spelling(text: str, scheduler: str) -> None:
    for share in ("vgpu: {A2-4Q: 1}", "vgpu: none"):
        assert only(f"gpus: all, {share}, scheduler: {text}", node("A2")).scheduler == scheduler
    assert only("gpus: all, vgpu: {A2-4Q: 1}", node("A2")).scheduler is None


@pytest.mark.parametrize("on", [True, False])
def test_passthrough(on: bool) -> None:
    request = only(f"gpus: {{index: 0}}, passthrough: {str(on).lower()}", node("T4"))
    assert request == DesiredGpu(request.pci, None, None, "f:4:5", passthrough=on)


def test_a_gpu_in_passthrough_is_named_as_before() -> None:
    node_inventory = node("A2", "H100 80GB HBM3")
    unavailable = msgspec.structs.replace(node_inventory.gpus[1], passthrough=True)
    node_inventory = msgspec.structs.replace(node_inventory, gpus=(node_inventory.gpus[0], unavailable))
    for gpus in ("{index: 1}", f"{{uuid: {unavailable.uuid}}}", "{product: H100 80GB HBM3}"):
        assert only(f"gpus: {gpus}, passthrough: false", node_inventory).pci == unavailable.pci
        assert only(f"gpus: {gpus}, vgpu: {{H100XM-80C: 1}}", node_inventory).pci == unavailable.pci
        assert only(f"gpus: {gpus}, mig: {{1g.10gb: 7}}", node_inventory).pci == unavailable.pci


def test_all_means_every_gpu_that_has_vgpu_types() -> None:
    wanted = desired_for(native("gpus: all, vgpu: {A2-4Q: 1}"), with_an_unrelated_device(node("A2", "A2")))
    assert (len(wanted.gpus), wanted.failures) == (2, ())
    assert wanted.notes == ("GPU 2 (NVIDIA Stranger, 0000:ff:00.0) has no known vGPU types and is left alone",)
    alone = desired_for(native("gpus: all, vgpu: {A2-4Q: 1}"), with_an_unrelated_device(node()))
    assert [f.rule for f in alone.failures] == ["NOT_CAPABLE"]
    assert "no GPU of this node has vGPU types" in alone.failures[0].message


def with_an_unrelated_device(node_inventory: Inventory) -> Inventory:
    unrelated = msgspec.structs.replace(
        node("A2").gpus[0],
        pci="0000:ff:00.0",
        product="NVIDIA Stranger",
        pci_device="0x123410DE",
        index=len(node_inventory.gpus),
    )
    return msgspec.structs.replace(node_inventory, gpus=(*node_inventory.gpus, unrelated))


def test_a_named_gpu_without_types_blocks() -> None:
    node_inventory = with_an_unrelated_device(node("A2"))
    assert blocked("gpus: {index: 1}, vgpu: {A2-4Q: 1}", node_inventory).rule == "NOT_CAPABLE"
    assert desired_for(native("gpus: {index: 1}, vgpu: none"), node_inventory).failures == ()


def test_an_unidentified_board_says_so() -> None:
    (gpu,) = node("A2").gpus
    gpus = msgspec.structs.replace(node(), gpus=(msgspec.structs.replace(gpu, subsystem=""),))
    fault = blocked("gpus: {index: 0}, vgpu: {A2-4Q: 1}", gpus)
    assert "could be NVIDIA A16 or NVIDIA A2, which only its subsystem id can distinguish" in fault.message


def test_a_lost_gpu() -> None:
    node_inventory = node("A2", "A2")
    gone = msgspec.structs.replace(node_inventory.gpus[1], lost=True)
    node_inventory = msgspec.structs.replace(node_inventory, gpus=(node_inventory.gpus[0], gone))
    assert blocked("gpus: {index: 1}, vgpu: {A2-4Q: 1}", node_inventory).rule == "GPU_LOST"
    assert blocked("gpus: {index: 1}, passthrough: true", node_inventory).rule == "GPU_LOST"
    assert blocked("gpus: {index: 1}, vgpu: none", node_inventory).rule == "GPU_LOST"
    wanted = desired_for(native("gpus: all, passthrough: true"), node_inventory)
    assert (len(wanted.gpus), wanted.failures) == (1, ())
    assert wanted.notes[0].endswith("fell off the bus and is left alone")


BLOCKED = [
    ("vgpu: {A16-4Q: 1}", "A2", "WRONG_CARD", "has no vGPU type A16-4Q: NVIDIA A16 has it (did you mean A2-4Q"),
    ("vgpu: {NVIDIA L40S-4Q: 1}", "T4", "WRONG_CARD", "NVIDIA L40S has it (here: T4-1B, "),
    ("vgpu: {A2-4Q: 1, A2-8Q: 1}", "A2", "EQUAL_SIZE", "A2-4Q and A2-8Q are of different sizes"),
    ("vgpu: {A2-4Q: 1, A2-8Q: 1}, mixed-size: false", "A2", "EQUAL_SIZE", "mixed-size: true"),
    ("vgpu: {T4-4Q: 1, T4-8Q: 1}", "T4", "EQUAL_SIZE", "mixed-size mode (not available on this product), on GPU 0"),
    ("vgpu: {A100X-1-5C: 1, A100X-4C: 1}", "A100-SXM4-40GB", "MIG_TYPE", "one needs MIG mode"),
    ("vgpu: {RTX5880-Ada-1B: 1}", "RTX 5880 Ada Generation", "TYPE_WITHOUT_ID", "NVIDIA RTX5880-Ada-1B is unknown"),
]


@pytest.mark.parametrize(("share", "name", "rule", "words"), BLOCKED)
def test_blocked(share: str, name: str, rule: str, words: str) -> None:
    fault = blocked(f"gpus: all, {share}", node(name))
    mixed = "aliquot plan --gpu 0 --vgpu A2-4Q:1,A2-8Q:1 --mixed-size"
    assert (fault.rule, fault.pci) == (rule, "0000:10:00.0")
    assert fault.next_step == (mixed if "A2-8Q" in share else "aliquot vgpu types 0")
    assert fault.message.startswith("f:4:")
    assert words in fault.message


def test_a_gpu_instance_that_the_family_does_not_have() -> None:
    odd = VgpuType("NVIDIA X-1-9C", "C", "mig-backed", 9216, 7, 9999, profile_id=250, profile="1g.9gb", per_instance=1)
    (gpu,) = node("A100-SXM4-40GB").gpus
    table = VgpuTable("X", gpu.pci_device, "ampere", "NVIDIA X", 40, (odd,), source="driver")
    gpus = msgspec.structs.replace(node("A100-SXM4-40GB"), vgpu_tables=(table,))
    fault = blocked("gpus: all, vgpu: {X-1-9C: 1}", gpus)
    assert (fault.rule, "needs a GPU instance 1g.9gb" in fault.message) == ("NO_INSTANCE", True)


def test_what_the_driver_reports_comes_before_the_catalog() -> None:
    learnt = VgpuType("NVIDIA RTX5880-Ada-1B", "B", "time-sliced", 1024, 32, 4711)
    (gpu,) = node("RTX 5880 Ada Generation").gpus
    table = VgpuTable(gpu.product, gpu.pci_device, "ada", "", 48, (learnt,), sriov=True, source="driver")
    gpus = msgspec.structs.replace(node("RTX 5880 Ada Generation"), vgpu_tables=(table,))
    assert {v.type_id for v in only("gpus: all, vgpu: {RTX5880-Ada-1B: 2}", gpus).vgpus or ()} == {4711}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ("vgpu: {A2-4Z: 4}", "f:4:24: no GPU has a vGPU type A2-4Z (did you mean A2-4Q"),
        ("vgpu: {NVIDIA A2-4QQ: 4}", "(did you mean NVIDIA A2-4Q"),
        ("vgpu: {A2-4Q: 4, NVIDIA A2-4Q: 1}", "'NVIDIA A2-4Q' names a vGPU type that this entry already has"),
    ],
)
def test_a_name_that_no_card_has_is_a_fault_of_the_file(share: str, words: str) -> None:
    for gpus in (node("A2"), node("A16", "A2")):
        with pytest.raises(ConfigError) as raised:
            desired_for(native(f"gpus: all, {share}"), gpus)
        assert words in raised.value.details[0]
    assert raised.value.exit_code == 2


def test_names_are_checked_for_gpus_that_are_not_here_too() -> None:
    entry = "gpus: {product: A16}, vgpu: {A16-4Z: 1}"
    with pytest.raises(ConfigError, match="1 error"):
        desired_for(native(entry, "gpus: {product: A2}, vgpu: none"), node("A2"))
    strange = native('gpus: {device-filter: "0x123410DE"}, vgpu: {NEW-4Q: 1}', "gpus: {product: A2}, vgpu: none")
    assert len(desired_for(strange, node("A2")).gpus) == 1


def test_overlapping_shares() -> None:
    node_inventory = node("A100-SXM4-40GB", "A2")
    texts = [("mig: {1g.5gb: 1}", "vgpu: {A100X-4C: 1}"), ("passthrough: true", "passthrough: false")]
    texts += [("vgpu: {A100X-4C: 1}", "vgpu: {A100X-4C: 2}"), ("vgpu: none", "vgpu: none, mixed-size: true")]
    texts += [("vgpu: none, scheduler: best-effort", "vgpu: none, scheduler: equal-share")]
    for one, other in texts:
        (line,) = faults_of(native(f"gpus: {{index: 0}}, {one}", f"gpus: {{index: 0}}, {other}"))
        assert line == "5:5: this entry and the one in line 4 request different states of the same GPU"
        pair = (f"gpus: {{index: 0}}, {one}", f"gpus: {{product: A100-SXM4-40GB}}, {other}")
        assert [f.rule for f in desired_for(native(*pair), node_inventory).failures] == ["OVERLAP"]
    same = ("gpus: {index: 0}, vgpu: {A100X-4C: 2}", 'gpus: {index: 0}, vgpu: {"GRID A100X-4C": 2}')
    assert len(desired_for(native(*same), node_inventory).gpus) == 1


def test_selecting_by_product_leaves_the_rest_alone() -> None:
    wanted = desired_for(native("gpus: {product: A2}, vgpu: {A2-4Q: 1}"), inventory("a100-sxm4-40gb"))
    assert [f.rule for f in wanted.failures] == ["NOTHING_MATCHES"]


REFUSED = [
    ("gpus: all, vgpu: {A2-4Q: 1}, passthrough: true", "one of mig, vgpu and passthrough, not 2"),
    ("gpus: all, mig: {1g.5gb: 1}, mixed-size: true", "'mixed-size' belongs beside 'vgpu'"),
    ("gpus: all, passthrough: true, mixed-size: true", "'mixed-size' belongs beside 'vgpu'"),
    ("gpus: all, vgpu: none, mixed-size: on", "'mixed-size' must be true or false, not the text 'on'"),
    ("gpus: all, passthrough: true, scheduler: equal-share", "'scheduler' belongs beside 'vgpu'"),
    ("gpus: all, vgpu: none, scheduler: fair", "'fair' is not a policy: write best-effort, equal-share, fixed-share"),
    ("gpus: all, vgpu: none, scheduler: {policy: equal-share}", "'scheduler'"),
    ('gpus: all, vgpu: none, scheduler: "equal-share,31ms"', "must be from 1ms to 30ms, not 31ms"),
    ("gpus: all, vgpu: none, mixed: true", "unknown key 'mixed'"),
    ("gpus: all, passthrough: yes", "'passthrough' must be true or false, not the text 'yes'"),
    ("gpus: all, passthrough: ~", "'passthrough' must be true or false, not nothing"),
    ("gpus: all, vgpu: ~", "'vgpu' must be none or a mapping of types to counts, not nothing"),
    ("gpus: all, vgpu: [A2-4Q]", "'vgpu' must be none or a mapping of types to counts, not a list"),
    ("gpus: all, vgpu: A2-4Q", "not the text 'A2-4Q'"),
    ("gpus: all, vgpu: {7: 1}", "a vGPU type is a name, not the number 7"),
    ('gpus: all, vgpu: {" ": 1}', "a vGPU type is a name"),
    ("gpus: all, vgpu: {A2-4Q: 0}", "from 1 to 64, not 0"),
    ("gpus: all, vgpu: {A2-4Q: 65}", "from 1 to 64, not 65"),
    ("gpus: all, vgpu: {A2-4Q: -1}", "from 1 to 64, not -1"),
    ("gpus: all, vgpu: {A2-4Q: 1.5}", "must be a whole number, not the number 1.5"),
    ("gpus: all, vgpu: {A2-4Q: true}", "must be a whole number, not the boolean true"),
    ("gpus: all, vgpu: {A2-4Q: four}", "must be a whole number, not the text 'four'"),
    ("gpus: all, vgpu: {A2-4Q: 1, A2-4Q: 1}", "written twice"),
    ('gpus: all, vgpu: {A2-4Q: 1, " A2-4Q": 1}', "already has"),
]


@pytest.mark.parametrize(("entry", "words"), REFUSED)
def test_refused(entry: str, words: str) -> None:
    found = faults_of(native(entry))
    assert any(words in line for line in found), found
    assert all(line.startswith("4:") for line in found)


def test_every_fault_at_once() -> None:
    found = faults_of(
        native("gpus: all, vgpu: {A2-4Q: 0, 3: 1}", "gpus: {index: x}, passthrough: 1, mixed-size: 2", "vgpu: 3")
    )
    assert len([line for line in found if line.startswith(("4:", "5:", "6:"))]) == len(found) >= 7


def test_mode_only_leaves_vgpus_and_passthrough_alone() -> None:
    for share, mig in (("vgpu: {A100X-1-5C: 1}", True), ("vgpu: {A100X-4C: 1}", False), ("passthrough: true", None)):
        wanted = mode_only(desired_for(native(f"gpus: all, {share}"), node("A100-SXM4-40GB")))
        assert wanted.gpus == (DesiredGpu("0000:10:00.0", mig, None, "f:4:5"),)


def test_all_spares_gpus_that_are_passed_through() -> None:
    node_inventory = node("A2", "A2")
    here, unavailable = node_inventory.gpus[0], msgspec.structs.replace(node_inventory.gpus[1], passthrough=True)
    mixed = msgspec.structs.replace(node_inventory, gpus=(here, unavailable))
    found = desired_for(native("gpus: all, vgpu: {A2-4Q: 4}"), mixed)
    assert [w.pci for w in found.gpus] == [here.pci]
    assert "is passed through to VMs and is left alone" in found.notes[0]
    named = desired_for(native("gpus: {index: 1}, vgpu: {A2-4Q: 4}"), mixed)
    assert [w.pci for w in named.gpus] == [unavailable.pci]
    nothing = desired_for(
        native("gpus: all, vgpu: {A2-4Q: 4}"), msgspec.structs.replace(node_inventory, gpus=(unavailable,))
    )
    assert not nothing.gpus
    assert "is available for this" in nothing.failures[0].message


def test_files_for_mig_spare_gpus_that_are_passed_through() -> None:
    node_inventory = node("A100-SXM4-40GB", "A100-SXM4-40GB")
    here, unavailable = node_inventory.gpus[0], msgspec.structs.replace(node_inventory.gpus[1], passthrough=True)
    mixed = msgspec.structs.replace(node_inventory, gpus=(here, unavailable))
    for devices in ("all", "[0, 1]"):
        entry = f"{{devices: {devices}, mig-enabled: true, mig-devices: {{1g.5gb: 7}}}}"
        found = desired_for(f"version: v1\nmig-configs:\n  c:\n    - {entry}\n", mixed)
        assert [w.pci for w in found.gpus] == [here.pci]
    assert [w.pci for w in desired_for(native("gpus: all, mig: {1g.5gb: 7}"), mixed).gpus] == [here.pci]
    assert [w.pci for w in desired_for(native("gpus: {index: 1}, mig: {1g.5gb: 7}"), mixed).gpus] == [unavailable.pci]


def test_plugin_parameters_of_each_vgpu() -> None:
    entry = "gpus: all, vgpu: {A2-4Q: 2}"
    wanted = only(f"{entry}, vgpu-parameters: {{frame_rate_limiter: false, enable_uvm: true}}", node("A2"))
    assert {v.parameters for v in wanted.vgpus or ()} == {"enable_uvm=1,frame_rate_limiter=0"}
    assert {v.parameters for v in only(f"{entry}, vgpu-parameters: {{}}", node("A2")).vgpus or ()} == {""}
    assert {v.parameters for v in only(entry, node("A2")).vgpus or ()} == {None}


@pytest.mark.parametrize(
    ("entry", "fault"),
    [
        ("gpus: all, vgpu: {A2-4Q: 2}, vgpu-parameters: {enable_uvn: true}", "'enable_uvn' in 'vgpu-parameters'"),
        ("gpus: all, vgpu: {A2-4Q: 2}, vgpu-parameters: {enable_uvm: 7}", "'enable_uvm' must be true or false, not"),
        ("gpus: all, vgpu: {A2-4Q: 2}, vgpu-parameters: enable_uvm=1", "'vgpu-parameters' must be a mapping"),
        ("gpus: all, mig: {}, vgpu-parameters: {enable_uvm: true}", "belongs beside the types of 'vgpu'"),
        ("gpus: all, vgpu: none, vgpu-parameters: {enable_uvm: true}", "belongs beside the types of 'vgpu'"),
    ],
)
def test_plugin_parameters_that_are_refused(entry: str, fault: str) -> None:
    (line,) = faults_of(native(entry))
    assert fault in line
