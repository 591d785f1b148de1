"""The devices that are published, and their order."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.occupancy import find_occupancy
from aliquot.kubernetes.dra.model.ranking import PublishPolicy, ScoreName, choose_devices
from support import factory
from unit.kubernetes.dra.model.nodes import A100, H100, desired, holding, names, offered


def test_an_empty_gpu_publishes_every_profile() -> None:
    found = desired(factory.inventory(A100, enabled=True))
    assert {each.profile for each in found.devices} == {
        "1g.5gb",
        "1g.5gb+me",
        "1g.10gb",
        "2g.10gb",
        "3g.20gb",
        "4g.20gb",
        "7g.40gb",
    }


def test_a_small_profile_goes_where_it_leaves_the_most_choices() -> None:
    # The driver itself puts the first 1g at slice 6: all placements but those of the upper half stay free.
    found = desired(factory.inventory(A100, enabled=True))
    assert names(found, "1g.5gb")[0] == "gpu-0-mig-1g5gb-19-6"
    first_fit = desired(factory.inventory(A100, enabled=True), policy=PublishPolicy("first-fit"))
    assert names(first_fit, "1g.5gb")[0] == "gpu-0-mig-1g5gb-19-0"


def test_what_an_allocated_device_blocks_is_left_out_and_the_device_stays() -> None:
    taken = "gpu-0-mig-4g20gb-5-0"
    found = desired(factory.inventory(A100, enabled=True), {taken})
    assert found.devices[-1].name == taken
    assert names(found, "3g.20gb") == ["gpu-0-mig-3g20gb-9-4"]
    assert names(found, "7g.40gb") == []
    assert {each.start for each in found.devices if each.name != taken} == {4, 5, 6}


def test_a_full_gpu_publishes_what_is_allocated_and_nothing_else() -> None:
    found = desired(factory.inventory(A100, enabled=True), {"gpu-0-mig-7g40gb-0-0"})
    assert [each.name for each in found.devices] == ["gpu-0-mig-7g40gb-0-0"]


def test_a_held_instance_blocks() -> None:
    node = holding(factory.with_instances(factory.inventory(A100), 0, "3g.20gb@4"))
    found = desired(node)
    assert names(found, "3g.20gb") == ["gpu-0-mig-3g20gb-9-0"]
    assert {each.start for each in found.devices} == {0, 1, 2, 3}
    assert names(desired(node, {"gpu-0-mig-3g20gb-9-4"}), "3g.20gb") == [
        "gpu-0-mig-3g20gb-9-0",
        "gpu-0-mig-3g20gb-9-4",
    ]


def test_an_idle_instance_that_must_stay_is_offered_and_blocks_others() -> None:
    node = factory.with_instances(factory.inventory(A100), 0, "2g.10gb@4")
    offer = offered(node)
    found = choose_devices(offer, find_occupancy(node, offer, (), lambda gpu, instance: True), PublishPolicy())
    assert "gpu-0-mig-2g10gb-14-4" in names(found, "2g.10gb")
    assert names(found, "3g.20gb") == ["gpu-0-mig-3g20gb-9-0"]
    assert names(found, "7g.40gb") == []


def test_a_warm_instance_comes_first_and_room_for_others_displaces_the_fewest() -> None:
    node = factory.with_instances(factory.inventory(f"{A100}*2", enabled=True), 1, "2g.10gb@0", "1g.5gb@6")
    found = desired(node)
    assert names(found, "2g.10gb")[0] == "gpu-1-mig-2g10gb-14-0"
    assert names(found, "1g.5gb")[0] == "gpu-1-mig-1g5gb-19-6"
    assert names(found, "7g.40gb") == ["gpu-0-mig-7g40gb-0-0", "gpu-1-mig-7g40gb-0-0"]
    assert names(found, "3g.20gb")[:2] == ["gpu-0-mig-3g20gb-9-4", "gpu-0-mig-3g20gb-9-0"]


@pytest.mark.parametrize(("score", "gpu"), [("keep-whole-gpus", "gpu-1"), ("first-fit", "gpu-0")])
def test_keep_whole_gpus_fills_the_gpu_that_is_in_use(score: ScoreName, gpu: str) -> None:
    node = factory.inventory(f"{A100}*2", enabled=True)
    found = desired(node, {"gpu-1-mig-1g5gb-19-0"}, PublishPolicy(score))
    assert names(found, "2g.10gb")[0].startswith(gpu)


def test_a_client_outside_instances_excludes_the_whole_gpu_only() -> None:
    found = desired(holding(factory.inventory(H100, enabled=True), gpu=True))
    assert names(found, None) == []
    assert names(found, "7g.80gb")
    assert desired(holding(factory.inventory(H100), gpu=True)).devices == ()


def test_a_whole_gpu_of_a_claim_excludes_everything_else() -> None:
    found = desired(holding(factory.inventory(H100), gpu=True), {"gpu-0"})
    assert [each.name for each in found.devices] == ["gpu-0"]


def test_nothing_is_free_on_an_unhealthy_gpu_and_its_claims_keep_their_devices() -> None:
    node = factory.inventory(f"{A100}*2", enabled=True)
    offer = offered(node)
    taken = "gpu-0-mig-3g20gb-9-4"
    occupancy = find_occupancy(node, offer, {taken}, unhealthy={node.gpus[0].pci})
    found = choose_devices(offer, occupancy, PublishPolicy())
    assert [each.name for each in found.devices if each.pci == node.gpus[0].pci] == [taken]


def test_a_held_instance_of_no_known_profile_closes_its_gpu() -> None:
    node = factory.with_instances(factory.inventory(A100), 0, "3g.20gb@4")
    strange = msgspec.structs.replace(node.gpus[0].instances[0], profile_id=999, held=True)
    gpu = msgspec.structs.replace(node.gpus[0], instances=(strange,))
    assert desired(msgspec.structs.replace(node, gpus=(gpu,))).devices == ()


def test_eight_gpus_fit_into_a_slice_and_every_profile_is_there() -> None:
    found = desired(factory.inventory(f"{H100}*8", enabled=True))
    assert len(found.devices) == 60
    assert {each.profile for each in found.devices} == {
        "1g.10gb",
        "1g.10gb+me",
        "1g.20gb",
        "2g.20gb",
        "3g.40gb",
        "4g.40gb",
        "7g.80gb",
        None,
    }
    assert names(found, None) == [f"gpu-{number}" for number in range(8)]  # for a claim of all GPUs of the node
    sizes = [each.size for each in found.devices if each.profile is not None]
    assert sizes == sorted(sizes)
    assert found.devices[-1].name.startswith("gpu-")
    assert found.devices[-1].whole


def test_room_is_divided_among_profiles_when_much_is_allocated() -> None:
    node = factory.inventory(f"{A100}*8", enabled=True)
    taken = {f"gpu-{gpu}-mig-1g5gb-19-{start}" for gpu in range(8) for start in range(7)} - {
        f"gpu-7-mig-1g5gb-19-{start}" for start in (4, 5, 6)
    }
    found = desired(node, taken)
    free = [each for each in found.devices if each.name not in taken]
    assert len(found.devices) <= 60
    assert {each.profile for each in free} == {"1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb"}


def test_sixteen_gpus_have_room_for_each_slice() -> None:
    found = desired(factory.inventory(f"{A100}*16", enabled=True))
    first = SliceLayout().groups(each.pci for each in found.devices)
    assert [sum(each.pci in group for each in found.devices) for group in first] == [56, 56]


def test_a_burst_of_claims_fills_one_gpu_after_the_other() -> None:
    found = desired(factory.inventory(f"{A100}*8", enabled=True))
    assert [name[:6] for name in names(found, "1g.5gb")][:7] == ["gpu-0-"] * 7
    assert [name[:6] for name in names(found, "3g.20gb")][:4] == ["gpu-0-", "gpu-0-", "gpu-1-", "gpu-1-"]
    assert [name[:6] for name in names(found, "1g.5gb+me")][:3] == ["gpu-0-", "gpu-1-", "gpu-2-"]


def test_a_claim_for_several_profiles_of_one_gpu_finds_them() -> None:
    # As in NVIDIA's example gpu-test4: two 1g, a 2g and a 3g with the same parentUUID.
    found = desired(factory.inventory(f"{A100}*8", enabled=True))
    places = {(each.profile, each.start) for each in found.devices if each.name.startswith("gpu-0-")}
    assert {("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3)} <= places


def test_published_devices_stay_rather_than_new_ones_of_lower_rank() -> None:
    node = factory.inventory(A100, enabled=True)
    offer = offered(node)
    found = choose_devices(
        offer, find_occupancy(node, offer, ()), PublishPolicy(per_profile=3), ("gpu-0-mig-1g5gb-19-0",)
    )
    assert names(found, "1g.5gb") == [f"gpu-0-mig-1g5gb-19-{start}" for start in (6, 4, 0)]
