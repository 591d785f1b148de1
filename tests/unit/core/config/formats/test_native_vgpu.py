"""vGPUs and passthrough in the native format: what they mean on each card, and what is refused."""

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
from unit.core.config.helpers import counts, faults_of, native, wish_for
from unit.core.config.vgpu_nodes import node

PRO = "RTX PRO 6000 Blackwell Server Edition"


def only(entry: str, cards: Inventory) -> DesiredGpu:
    wanted = wish_for(native(entry), cards)
    assert wanted.failures == ()
    (wish,) = wanted.gpus
    return wish


def types(wish: DesiredGpu) -> Counter[str]:
    return Counter(v.type for v in wish.vgpus or ())


def blocked(entry: str, cards: Inventory) -> ResolutionFailure:
    wanted = wish_for(native(entry), cards)
    assert wanted.gpus == ()
    (fault,) = wanted.failures
    return fault


@pytest.mark.parametrize("name", ["NVIDIA A2-4Q", "A2-4Q", "id:746", "nvidia-746"])
def test_time_sliced_with_virtual_functions(name: str) -> None:
    wish = only(f'gpus: all, vgpu: {{"{name}": 4}}', node("A2"))
    assert (wish.mig, wish.instances, wish.functions, wish.mixed_size, wish.passthrough) == (None, (), True, None, None)
    assert {(v.type_id, v.type, v.function, v.uuid) for v in wish.vgpus or ()} == {(746, "NVIDIA A2-4Q", "", "")}
    assert types(wish) == {"NVIDIA A2-4Q": 4}


def test_types_by_their_numbers() -> None:
    unquoted = only("gpus: all, vgpu: {id:746: 2, nvidia-754: 1}", node("A2"))
    assert types(unquoted) == {"NVIDIA A2-4Q": 2, "NVIDIA A2-4C": 1}
    fault = blocked("gpus: all, vgpu: {id:746: 2}", node("T4"))
    assert (fault.rule, "no vGPU type id:746: NVIDIA A2 has it" in fault.message) == ("WRONG_CARD", True)
    (line,) = faults_of(native("gpus: all, vgpu: {746: 2}"))
    assert "write id:746, or the type's name" in line
    same = wish_for(native("gpus: all, vgpu: {id:746: 2}", "gpus: all, vgpu: {A2-4Q: 2}"), node("A2"))
    assert (len(same.gpus), same.failures) == (1, ())
    other = wish_for(native("gpus: all, vgpu: {id:746: 2}", "gpus: all, vgpu: {A2-4Q: 3}"), node("A2"))
    assert [f.rule for f in other.failures] == ["OVERLAP"]


def test_a_card_without_virtual_functions() -> None:
    wish = only('gpus: all, vgpu: {"GRID T4-4Q": 2, T4-4C: 1}', node("T4"))
    assert (wish.functions, types(wish)) == (None, {"GRID T4-4Q": 2, "GRID T4-4C": 1})


def test_time_sliced_switches_mig_off_where_there_is_mig() -> None:
    assert only("gpus: all, vgpu: {A100X-4C: 10}", node("A100-SXM4-40GB")).mig is False


def test_mig_backed_brings_its_gpu_instances() -> None:
    wish = only("gpus: all, vgpu: {H100XM-1-10C: 5, H100XM-2-20C: 1}", node("H100 80GB HBM3"))
    assert (wish.mig, wish.functions, counts(wish)) == (True, True, {"2g.20gb": 1, "1g.10gb": 5})
    assert [len(i.compute) for i in wish.instances or ()] == [1] * 6
    assert next(i.name for i in wish.instances or ()) == "2g.20gb"


def test_several_share_a_gpu_instance_of_one_size() -> None:
    wish = only("gpus: all, vgpu: {DC-1-2Q: 13, DC-1-2B: 11, DC-1-24C: 1, DC-2-48Q: 1}", node(PRO))
    assert counts(wish) == {"1g.24gb+gfx": 3, "2g.48gb+gfx": 1}
    assert len(wish.vgpus or ()) == 26


def test_a_gpu_instance_that_is_not_full_counts_whole() -> None:
    assert counts(only("gpus: all, vgpu: {DC-1-2Q: 13}", node(PRO))) == {"1g.24gb+gfx": 2}
    assert counts(only("gpus: all, vgpu: {DC-1-2Q: 1, DC-1-3Q: 1}", node(PRO))) == {"1g.24gb+gfx": 2}


def test_none_and_mixed() -> None:
    for text in ("vgpu: none", "vgpu: {}"):
        wish = only(f"gpus: all, {text}", node("A2"))
        assert (wish.mig, wish.instances, wish.vgpus, wish.functions) == (None, None, (), None)
    wish = only("gpus: all, vgpu: {A2-4Q: 1, A2-8Q: 1}, mixed-size: true", node("A2"))
    assert (wish.mixed_size, len(wish.vgpus or ())) == (True, 2)
    assert only("gpus: all, vgpu: {A2-4Q: 1}, mixed-size: false", node("A2")).mixed_size is False


@pytest.mark.parametrize("on", [True, False])
def test_passthrough(on: bool) -> None:
    wish = only(f"gpus: {{index: 0}}, passthrough: {str(on).lower()}", node("T4"))
    assert wish == DesiredGpu(wish.pci, None, None, "f:4:5", passthrough=on)


def test_a_gpu_in_passthrough_is_named_as_before() -> None:
    cards = node("A2", "H100 80GB HBM3")
    away = msgspec.structs.replace(cards.gpus[1], passthrough=True)
    cards = msgspec.structs.replace(cards, gpus=(cards.gpus[0], away))
    for gpus in ("{index: 1}", f"{{uuid: {away.uuid}}}", "{product: H100 80GB HBM3}"):
        assert only(f"gpus: {gpus}, passthrough: false", cards).pci == away.pci
        assert only(f"gpus: {gpus}, vgpu: {{H100XM-80C: 1}}", cards).pci == away.pci
        assert only(f"gpus: {gpus}, mig: {{1g.10gb: 7}}", cards).pci == away.pci


def test_all_means_every_gpu_that_has_vgpu_types() -> None:
    wanted = wish_for(native("gpus: all, vgpu: {A2-4Q: 1}"), with_a_stranger(node("A2", "A2")))
    assert (len(wanted.gpus), wanted.failures) == (2, ())
    assert wanted.notes == ("GPU 2 (NVIDIA Stranger, 0000:ff:00.0) has no vGPU types that are known and is left alone",)
    alone = wish_for(native("gpus: all, vgpu: {A2-4Q: 1}"), with_a_stranger(node()))
    assert [f.rule for f in alone.failures] == ["NOT_CAPABLE"]
    assert "no GPU of this node has vGPU types" in alone.failures[0].message


def with_a_stranger(cards: Inventory) -> Inventory:
    stranger = msgspec.structs.replace(
        node("A2").gpus[0],
        pci="0000:ff:00.0",
        product="NVIDIA Stranger",
        pci_device="0x123410DE",
        index=len(cards.gpus),
    )
    return msgspec.structs.replace(cards, gpus=(*cards.gpus, stranger))


def test_a_named_gpu_without_types_blocks() -> None:
    cards = with_a_stranger(node("A2"))
    assert blocked("gpus: {index: 1}, vgpu: {A2-4Q: 1}", cards).rule == "NOT_CAPABLE"
    assert wish_for(native("gpus: {index: 1}, vgpu: none"), cards).failures == ()


def test_a_board_that_cannot_be_told_says_so() -> None:
    (gpu,) = node("A2").gpus
    cards = msgspec.structs.replace(node(), gpus=(msgspec.structs.replace(gpu, subsystem=""),))
    fault = blocked("gpus: {index: 0}, vgpu: {A2-4Q: 1}", cards)
    assert "could be NVIDIA A16 or NVIDIA A2, which only its subsystem id tells" in fault.message


def test_a_lost_gpu() -> None:
    cards = node("A2", "A2")
    gone = msgspec.structs.replace(cards.gpus[1], lost=True)
    cards = msgspec.structs.replace(cards, gpus=(cards.gpus[0], gone))
    assert blocked("gpus: {index: 1}, vgpu: {A2-4Q: 1}", cards).rule == "GPU_LOST"
    assert blocked("gpus: {index: 1}, passthrough: true", cards).rule == "GPU_LOST"
    assert blocked("gpus: {index: 1}, vgpu: none", cards).rule == "GPU_LOST"
    wanted = wish_for(native("gpus: all, passthrough: true"), cards)
    assert (len(wanted.gpus), wanted.failures) == (1, ())
    assert wanted.notes[0].endswith("fell off the bus and is left alone")


BLOCKED = [
    ("vgpu: {A16-4Q: 1}", "A2", "WRONG_CARD", "has no vGPU type A16-4Q: NVIDIA A16 has it (did you mean A2-4Q"),
    ("vgpu: {NVIDIA L40S-4Q: 1}", "T4", "WRONG_CARD", "NVIDIA L40S has it (here: T4-1B, "),
    ("vgpu: {A2-4Q: 1, A2-8Q: 1}", "A2", "EQUAL_SIZE", "A2-4Q and A2-8Q are of different sizes"),
    ("vgpu: {A2-4Q: 1, A2-8Q: 1}, mixed-size: false", "A2", "EQUAL_SIZE", "mixed-size: true"),
    ("vgpu: {T4-4Q: 1, T4-8Q: 1}", "T4", "EQUAL_SIZE", "mixed-size mode (this card has none), on GPU 0"),
    ("vgpu: {A100X-1-5C: 1, A100X-4C: 1}", "A100-SXM4-40GB", "MIG_TYPE", "one needs MIG mode"),
    ("vgpu: {RTX5880-Ada-1B: 1}", "RTX 5880 Ada Generation", "TYPE_WITHOUT_ID", "NVIDIA RTX5880-Ada-1B is not known"),
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
    cards = msgspec.structs.replace(node("A100-SXM4-40GB"), vgpu_tables=(table,))
    fault = blocked("gpus: all, vgpu: {X-1-9C: 1}", cards)
    assert (fault.rule, "needs a GPU instance 1g.9gb" in fault.message) == ("NO_INSTANCE", True)


def test_what_the_driver_told_comes_before_the_catalog() -> None:
    learnt = VgpuType("NVIDIA RTX5880-Ada-1B", "B", "time-sliced", 1024, 32, 4711)
    (gpu,) = node("RTX 5880 Ada Generation").gpus
    table = VgpuTable(gpu.product, gpu.pci_device, "ada", "", 48, (learnt,), sriov=True, source="driver")
    cards = msgspec.structs.replace(node("RTX 5880 Ada Generation"), vgpu_tables=(table,))
    assert {v.type_id for v in only("gpus: all, vgpu: {RTX5880-Ada-1B: 2}", cards).vgpus or ()} == {4711}


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ("vgpu: {A2-4Z: 4}", "f:4:24: no GPU has a vGPU type A2-4Z (did you mean A2-4Q"),
        ("vgpu: {NVIDIA A2-4QQ: 4}", "(did you mean NVIDIA A2-4Q"),
        ("vgpu: {A2-4Q: 4, NVIDIA A2-4Q: 1}", "'NVIDIA A2-4Q' names a vGPU type that this entry has already"),
    ],
)
def test_a_name_that_no_card_has_is_a_fault_of_the_file(share: str, words: str) -> None:
    for cards in (node("A2"), node("A16", "A2")):
        with pytest.raises(ConfigError) as raised:
            wish_for(native(f"gpus: all, {share}"), cards)
        assert words in raised.value.details[0]
    assert raised.value.exit_code == 2


def test_names_are_checked_for_gpus_that_are_not_here_too() -> None:
    entry = "gpus: {product: A16}, vgpu: {A16-4Z: 1}"
    with pytest.raises(ConfigError, match="1 fault"):
        wish_for(native(entry, "gpus: {product: A2}, vgpu: none"), node("A2"))
    strange = native('gpus: {device-filter: "0x123410DE"}, vgpu: {NEW-4Q: 1}', "gpus: {product: A2}, vgpu: none")
    assert len(wish_for(strange, node("A2")).gpus) == 1


def test_overlapping_shares() -> None:
    cards = node("A100-SXM4-40GB", "A2")
    texts = [("mig: {1g.5gb: 1}", "vgpu: {A100X-4C: 1}"), ("passthrough: true", "passthrough: false")]
    texts += [("vgpu: {A100X-4C: 1}", "vgpu: {A100X-4C: 2}"), ("vgpu: none", "vgpu: none, mixed-size: true")]
    for one, other in texts:
        (line,) = faults_of(native(f"gpus: {{index: 0}}, {one}", f"gpus: {{index: 0}}, {other}"))
        assert line == "5:5: this entry and the one in line 4 want different things of the same GPU"
        pair = (f"gpus: {{index: 0}}, {one}", f"gpus: {{product: A100-SXM4-40GB}}, {other}")
        assert [f.rule for f in wish_for(native(*pair), cards).failures] == ["OVERLAP"]
    same = ("gpus: {index: 0}, vgpu: {A100X-4C: 2}", 'gpus: {index: 0}, vgpu: {"GRID A100X-4C": 2}')
    assert len(wish_for(native(*same), cards).gpus) == 1


def test_selecting_by_product_leaves_the_rest_alone() -> None:
    wanted = wish_for(native("gpus: {product: A2}, vgpu: {A2-4Q: 1}"), inventory("a100-sxm4-40gb"))
    assert [f.rule for f in wanted.failures] == ["NOTHING_MATCHES"]


REFUSED = [
    ("gpus: all, vgpu: {A2-4Q: 1}, passthrough: true", "one of mig, vgpu and passthrough, not 2"),
    ("gpus: all, mig: {1g.5gb: 1}, mixed-size: true", "'mixed-size' belongs beside 'vgpu'"),
    ("gpus: all, passthrough: true, mixed-size: true", "'mixed-size' belongs beside 'vgpu'"),
    ("gpus: all, vgpu: none, mixed-size: on", "'mixed-size' must be true or false, not the text 'on'"),
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
    ('gpus: all, vgpu: {A2-4Q: 1, " A2-4Q": 1}', "has already"),
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
        wanted = mode_only(wish_for(native(f"gpus: all, {share}"), node("A100-SXM4-40GB")))
        assert wanted.gpus == (DesiredGpu("0000:10:00.0", mig, None, "f:4:5"),)


def test_all_spares_gpus_that_are_handed_out() -> None:
    cards = node("A2", "A2")
    here, away = cards.gpus[0], msgspec.structs.replace(cards.gpus[1], passthrough=True)
    mixed = msgspec.structs.replace(cards, gpus=(here, away))
    found = wish_for(native("gpus: all, vgpu: {A2-4Q: 4}"), mixed)
    assert [w.pci for w in found.gpus] == [here.pci]
    assert "is handed out to virtual machines and is left alone" in found.notes[0]
    named = wish_for(native("gpus: {index: 1}, vgpu: {A2-4Q: 4}"), mixed)
    assert [w.pci for w in named.gpus] == [away.pci]
    nothing = wish_for(native("gpus: all, vgpu: {A2-4Q: 4}"), msgspec.structs.replace(cards, gpus=(away,)))
    assert not nothing.gpus
    assert "is here for this" in nothing.failures[0].message


def test_files_for_mig_spare_gpus_that_are_handed_out() -> None:
    cards = node("A100-SXM4-40GB", "A100-SXM4-40GB")
    here, away = cards.gpus[0], msgspec.structs.replace(cards.gpus[1], passthrough=True)
    mixed = msgspec.structs.replace(cards, gpus=(here, away))
    for devices in ("all", "[0, 1]"):
        entry = f"{{devices: {devices}, mig-enabled: true, mig-devices: {{1g.5gb: 7}}}}"
        found = wish_for(f"version: v1\nmig-configs:\n  c:\n    - {entry}\n", mixed)
        assert [w.pci for w in found.gpus] == [here.pci]
    assert [w.pci for w in wish_for(native("gpus: all, mig: {1g.5gb: 7}"), mixed).gpus] == [here.pci]
    assert [w.pci for w in wish_for(native("gpus: {index: 1}, mig: {1g.5gb: 7}"), mixed).gpus] == [away.pci]
