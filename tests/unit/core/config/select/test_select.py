"""A named config on a node: the selected GPUs, the blockers, the notes."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import mode_only, select
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory, Mig
from aliquot.errors import ConfigError
from support.factory import inventory
from unit.core.config.helpers import counts, desired_for, native, parted

A100 = inventory("a100-sxm4-40gb*8")
MIXED = inventory("a100-sxm4-40gb*2", "a30", "tesla-t4")
T4 = inventory("tesla-t4*2")


def on(devices: str, mig: str, more: str = "") -> str:
    return f"devices: {devices}, mig-enabled: true, mig-devices: {{{mig}}}{more}"


def rules(wanted: Desired) -> list[str]:
    return [fault.rule for fault in wanted.failures]


def test_all_means_every_capable_gpu_and_the_others_are_named() -> None:
    wanted = desired_for(parted(on("all", "")), MIXED)
    assert [w.pci for w in wanted.gpus] == [g.pci for g in MIXED.gpus[:3]]
    assert all(w.mig and w.instances == () for w in wanted.gpus)
    assert wanted.failures == ()
    assert wanted.notes == ("GPU 3 (Tesla T4, 0000:4e:00.0) cannot be partitioned and is left alone",)


@pytest.mark.parametrize(
    "text",
    [
        parted(on("[0, 3]", "1g.5gb: 1")),
        parted(on("all", "1g.5gb: 1", ', device-filter: "0x1EB810DE"')),
        native("gpus: {index: 3}, mig: {1g.5gb: 1}"),
        native("gpus: {product: tesla-t4}, mig: {1g.5gb: 1}"),
        native("gpus: {pci: 0000:4e:00.0}, mig: {1g.5gb: 1}"),
        native("gpus: {uuid: GPU-00000003-0000-4000-8000-00000000004e}, mig: {1g.5gb: 1}"),
    ],
)
def test_incapable_gpu_named_explicitly_blocks(text: str) -> None:
    wanted = desired_for(text, MIXED)
    assert rules(wanted) == ["NOT_CAPABLE"]
    assert "Tesla T4" in wanted.failures[0].message
    assert wanted.failures[0].pci == "0000:4e:00.0"
    assert wanted.failures[0].next_step == "aliquot show"


def test_incapable_gpu_may_be_requested_with_mig_off() -> None:
    wanted = desired_for(parted("devices: [3], mig-enabled: false"), MIXED)
    assert (wanted.gpus, wanted.failures) == ((), ())
    assert desired_for(parted("devices: all, mig-enabled: false"), T4).failures == ()


def test_mig_on_a_node_without_any_capable_gpu_blocks() -> None:
    wanted = desired_for(parted(on("all", "1g.5gb: 1")), T4)
    assert rules(wanted) == ["NOT_CAPABLE"]
    assert "no GPU of this node can be partitioned" in wanted.failures[0].message


def test_compat_notes_an_incapable_gpu() -> None:
    wanted = desired_for(parted(on("[0, 3]", "1g.5gb: 1")), MIXED, compat=True)
    assert rules(wanted) == []
    assert [w.pci for w in wanted.gpus] == ["0000:07:00.0"]


@pytest.mark.parametrize(
    "text",
    [
        parted(on("[7, 8, 9]", "1g.5gb: 1")),
        native("gpus: {index: 6-9}, mig: {1g.5gb: 1}"),
        native("gpus: {pci: 0000:99:00.0}, mig: {1g.5gb: 1}"),
        native("gpus: {uuid: GPU-1234}, mig: {1g.5gb: 1}"),
        native("gpus: {product: a100-sxm4-40gb, index: [0, 9]}, mig: {1g.5gb: 1}"),
    ],
)
def test_gpu_that_is_not_there_blocks(text: str) -> None:
    wanted = desired_for(text, A100)
    assert rules(wanted) == ["NO_SUCH_GPU"]
    assert wanted.failures[0].message.startswith("f:4:5: no GPU with the ")


def test_compat_passes_over_an_index_that_is_not_there() -> None:
    wanted = desired_for(parted(on("[7, 8]", "1g.5gb: 1")), A100, compat=True)
    assert rules(wanted) == []
    assert len(wanted.gpus) == 1


def test_entry_for_another_chip_is_a_note() -> None:
    other = on("all", "1g.6gb: 4", ', device-filter: "0x20B710DE"')
    indexed = on("[0, 99]", "1g.6gb: 4", ', device-filter: "0x20B710DE"')
    wanted = desired_for(parted(on("all", "1g.5gb: 7"), other, indexed), A100)
    assert rules(wanted) == []
    assert wanted.notes == ("2 of 3 entries of 'c' match no GPU here (f lines 5, 6)",)


OTHERS = [
    parted(on("all", "1g.6gb: 4", ', device-filter: "0x20B710DE"')),
    parted(on("all", "1g.6gb: 4", ', device-filter: "0x12345678"')),
]


@pytest.mark.parametrize("text", OTHERS)
def test_compat_passes_over_a_config_for_other_gpus(text: str) -> None:
    # A fleet file covers pools of different GPUs: mig-parted succeeds if a config is for another pool.
    wanted = desired_for(text, A100, compat=True)
    assert (rules(wanted), wanted.gpus) == ([], ())
    assert "matches no GPU of this node" in wanted.notes[-1]


@pytest.mark.parametrize(
    ("text", "compat"),
    [
        *((text, False) for text in OTHERS),
        *(
            (text, compat)
            for compat in (False, True)
            for text in (
                native("gpus: {product: h100-pcie}, mig: {1g.10gb: 1}"),
                native('gpus: {device-filter: "0x20B010DE:0xFFFF10DE"}, mig: {1g.5gb: 1}'),
            )
        ),
    ],
)
def test_nothing_matches_blocks(text: str, compat: bool) -> None:
    wanted = desired_for(text, A100, compat=compat)
    assert rules(wanted) == ["NOTHING_MATCHES"]
    assert "NVIDIA A100-SXM4-40GB" in wanted.failures[0].message
    assert wanted.gpus == ()


def test_profile_of_another_model_blocks_with_close_matches() -> None:
    wanted = desired_for(parted(on("all", "1g.10gb+me: 1")), A100)
    assert rules(wanted) == ["UNKNOWN_PROFILE"]
    fault = wanted.failures[0]
    assert fault.message.startswith("f:4:53: GPUs 0-7 (NVIDIA A100-SXM4-40GB) have no profile")
    assert "H100" in fault.message
    assert "did you mean 1g.5gb+me" in fault.message
    assert fault.next_step == "aliquot profiles 0"
    assert wanted.gpus == ()


def test_one_bad_name_among_good_ones_requests_nothing_of_that_gpu() -> None:
    wanted = desired_for(parted(on("all", "1g.5gb: 3, 3g.40gb: 1")), inventory("a100-sxm4-40gb"))
    assert (wanted.gpus, rules(wanted)) == ((), ["UNKNOWN_PROFILE"])


@pytest.mark.parametrize("name", ["9g.5gb", "2c.1g.5gb", "0c.1g.5gb", "1g.5gb+ME", "8c.7g.40gb", "1g.99gb"])
def test_name_that_no_gpu_has(name: str) -> None:
    config = load(parted(on("all", f"1g.5gb: 1, {name}: 1")), "f")
    with pytest.raises(ConfigError, match="1 error") as caught:
        select(config, None, A100)
    assert f"f:4:64: no GPU has a profile {name} (did you mean" in caught.value.details[0]
    assert caught.value.exit_code == 2
    tolerant = desired_for(parted(on("all", f"1g.5gb: 1, {name}: 1")), A100, compat=True)
    assert (tolerant.gpus, rules(tolerant)) == ((), ["UNKNOWN_PROFILE"])


def test_all_unknown_names_at_once() -> None:
    text = parted(on("[0]", "9g.5gb: 1, 8g.5gb: 1"), on("[1]", "6g.1gb: 1"))
    with pytest.raises(ConfigError, match="3 errors"):
        desired_for(text, A100)


def test_unknown_name_in_an_entry_for_absent_gpus() -> None:
    text = parted(on("all", "1g.5gb: 1"), on("all", "1g.66gb: 1", ', device-filter: "0x20B710DE"'))
    with pytest.raises(ConfigError, match="1 error"):
        desired_for(text, A100)
    future = text.replace("0x20B710DE", "0x7FFF10DE")
    assert desired_for(future, A100).failures == ()


def test_name_that_only_the_driver_knows() -> None:
    family = catalog.family("a100-40gb")
    profile = msgspec.structs.replace(family.profiles[0], name="1g.77gb")
    table = msgspec.structs.replace(family, name="strange", profiles=(profile,), source="driver")
    gpu = msgspec.structs.replace(A100.gpus[0], family="strange")
    node = msgspec.structs.replace(A100, gpus=(gpu,), tables=(table,))
    (request,) = desired_for(parted(on("all", "1g.77gb: 2")), node).gpus
    assert counts(request) == {"1g.77gb": 2}


def test_profile_ids() -> None:
    wanted = desired_for(native("gpus: {index: 0-1}, mig: {id:19: 1}", "gpus: {index: 2}, mig: {id:14: 4}"), MIXED)
    assert [counts(w) for w in wanted.gpus] == [{"1g.5gb": 1}, {"1g.5gb": 1}, {"1g.6gb": 4}]
    blocked = desired_for(native("gpus: {index: 2}, mig: {id:19: 1}"), MIXED)
    assert rules(blocked) == ["UNKNOWN_PROFILE"]
    assert "14 = 1g.6gb" in blocked.failures[0].message
    with pytest.raises(ConfigError, match="1 error"):
        desired_for(native("gpus: {index: 2}, mig: {id:4711: 1}"), MIXED)


def test_bad_placement_blocks_and_names_the_legal_ones() -> None:
    for place in ("2", "4:3", "99"):
        wanted = desired_for(native(f"gpus: {{index: 0}}, mig: [3g.20gb@{place}]"), A100)
        assert rules(wanted) == ["BAD_PLACEMENT"]
        assert "3g.20gb can only be placed at 0:4, 4:4" in wanted.failures[0].message


def test_overlapping_entries_that_disagree_here() -> None:
    text = parted(on("all", "1g.5gb: 1"), on("all", "2g.10gb: 1", ', device-filter: "0x20B010DE"'))
    wanted = desired_for(text, MIXED)
    clashes = [f for f in wanted.failures if f.rule == "OVERLAP"]
    assert [f.pci for f in clashes] == ["0000:07:00.0", "0000:0f:00.0"]
    assert clashes[0].message.startswith("f:5:5: this entry and f:4:5 are overlapping entries")
    assert wanted.gpus == ()


def test_compat_takes_the_last_of_overlapping_entries() -> None:
    text = parted(on("all", "1g.5gb: 1"), "devices: [1], mig-enabled: false")
    wanted = desired_for(text, inventory("a100-sxm4-40gb*2"), compat=True)
    assert rules(wanted) == []
    assert [w.mig for w in wanted.gpus] == [True, False]


def test_overlapping_entries_that_agree() -> None:
    text = parted(on("all", "1g.5gb: 1, 2g.10gb: 1"), on("[1]", "2g.10gb: 1, 01g.5gb: 1"))
    assert rules(desired_for(text, A100)) == []


def test_same_spelling_means_the_same_on_every_gpu_model() -> None:
    node = inventory("a100-sxm4-80gb", "a100-sxm4-40gb")
    first, second = desired_for(parted(on("all", "1g.10gb: 1")), node).gpus
    assert [i.profile_id for i in first.instances or ()] == [19]
    assert [i.profile_id for i in second.instances or ()] == [15]


def test_gpu_without_a_table() -> None:
    gpu = msgspec.structs.replace(T4.gpus[0], mig=Mig(capable=True), family=None)
    node = msgspec.structs.replace(T4, gpus=(gpu,))
    assert rules(desired_for(parted(on("all", "1g.5gb: 1")), node)) == ["NO_TABLE"]
    assert rules(desired_for(parted("devices: all, mig-enabled: false"), node)) == []


def test_choosing_the_named_config() -> None:
    one = load(parted("devices: all, mig-enabled: false"), "f")
    assert select(one, None, A100).name == "c"
    text = parted("devices: all, mig-enabled: false") + "  all-1g.5gb:\n  - {devices: all, mig-enabled: false}\n"
    two = load(text, "f")
    with pytest.raises(ConfigError, match="2 named configs") as caught:
        select(two, None, A100)
    assert caught.value.details == ("f has: c, all-1g.5gb",)
    with pytest.raises(ConfigError, match=r"did you mean all-1g\.5gb"):
        select(two, "all-1g.5g", A100)
    with pytest.raises(ConfigError, match="no named config"):
        select(load("version: v1\n", "f", compat=True), None, A100)


def test_mode_only_leaves_instances_as_they_are() -> None:
    wanted = mode_only(desired_for(parted(on("all", "1g.5gb: 1")), A100))
    assert {(w.mig, w.instances) for w in wanted.gpus} == {(True, None)}


def test_empty_node() -> None:
    wanted = desired_for(parted(on("all", "1g.5gb: 1")), Inventory(node="n", gpus=()))
    assert rules(wanted) == ["NOTHING_MATCHES"]
    assert "no GPU" in wanted.failures[0].message
