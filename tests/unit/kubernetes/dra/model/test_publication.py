"""The next publication: taint first, removal later, and never a change of an allocated device."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.objects import DeviceTaint
from aliquot.kubernetes.dra.model.publication import HIDDEN_TAINT, Publication, hidden_since, next_publication
from aliquot.kubernetes.dra.model.ranking import PublishedChoice, PublishPolicy
from support import factory
from unit.kubernetes.dra.model.nodes import A100, desired, holding

NOW = datetime(2026, 11, 28, 8, 0, 0, 400_000, tzinfo=UTC)
ONE = PublishPolicy(per_profile=1)
S = timedelta(seconds=1)


def after(previous: Publication, node: Inventory, *allocated: str, now: datetime = NOW) -> Publication:
    return next_publication(previous, desired(node, allocated, ONE), allocated, now)


def find(publication: Publication, name: str) -> DraDevice | None:
    return next((each for each in publication.devices if each.name == name), None)


def hidden_in(publication: Publication, name: str) -> bool:
    return name in publication.hidden


def test_nothing_changes_when_nothing_happened() -> None:
    node = factory.inventory(f"{A100}*2", enabled=True)
    first = after(Publication(), node)
    assert first.devices == desired(node, (), ONE).devices
    assert after(first, node, now=NOW + 60 * S) == first
    assert first.due() is None


def test_a_free_device_is_tainted_then_removed() -> None:
    node = factory.inventory(A100, enabled=True)
    first = after(Publication(), node)
    hidden = "gpu-0-mig-1g5gb-19-6"
    taken = holding(factory.with_instances(node, 0, "1g.5gb@6"))  # by a job, which no counter knows of yet
    second = after(first, taken)
    device = find(second, hidden)
    assert device is not None
    assert [(t.key, t.effect, t.time_added) for t in device.taints] == [
        (HIDDEN_TAINT, "NoSchedule", "2026-11-28T08:00:01Z")
    ]
    assert second.due() == NOW.replace(microsecond=0) + 6 * S
    assert after(second, taken, now=NOW + 5 * S) == second
    third = after(second, taken, now=NOW + 6 * S)
    assert find(third, hidden) is None
    assert third.hidden == {}


def test_a_device_that_is_wanted_again_loses_its_taint() -> None:
    node = factory.inventory(A100, enabled=True)
    first = after(Publication(), node)
    second = after(first, holding(factory.with_instances(node, 0, "1g.5gb@6")))
    assert second.hidden
    third = after(second, node, now=NOW + S)
    assert find(third, "gpu-0-mig-1g5gb-19-6") == find(first, "gpu-0-mig-1g5gb-19-6")
    assert not hidden_in(third, "gpu-0-mig-1g5gb-19-6")


def test_a_device_that_a_claim_got_while_it_was_tainted_stays_as_it_is() -> None:
    node = factory.inventory(A100, enabled=True)
    hidden = "gpu-0-mig-1g5gb-19-6"
    second = after(after(Publication(), node), holding(factory.with_instances(node, 0, "1g.5gb@6")))
    third = after(second, node, hidden, now=NOW + 60 * S)
    assert find(third, hidden) == find(second, hidden)
    assert find(third, hidden) is not None


def test_a_device_that_an_allocated_one_blocks_is_tainted_too() -> None:
    # Its claim may end before the agent sees it: the scheduler could give the device while the agent removes it.
    node, taken = factory.inventory(A100, enabled=True), "gpu-0-mig-7g40gb-0-0"
    first = after(Publication(), node)
    second = after(first, node, taken)
    assert set(second.hidden) == {each.name for each in first.devices} - {taken}
    third = after(second, node, taken, now=NOW + 10 * S)
    assert [each.name for each in third.devices] == [taken]


def test_an_allocated_device_is_not_changed_by_its_gpu() -> None:
    node = factory.inventory(f"{A100}*2", enabled=True)
    taken = "gpu-1-mig-3g20gb-9-4"
    first = after(Publication(), node, taken)
    warm = after(first, factory.with_instances(node, 1, "3g.20gb@4"), taken)
    assert find(warm, taken) == find(first, taken)
    gone = msgspec.structs.replace(node, gpus=node.gpus[:1])
    last = after(first, gone, taken, now=NOW + 60 * S)
    assert find(last, taken) == find(first, taken)
    assert [each.name for each in last.counter_sets] == ["gpu-0-counter-set", "gpu-1-counter-set"]


def test_the_counters_of_a_gpu_that_is_gone_stay_while_a_claim_needs_them() -> None:
    node = factory.inventory(f"{A100}*2", enabled=True)
    gone = msgspec.structs.replace(node, gpus=node.gpus[:1])
    first = next_publication(Publication(), desired(node), (), NOW)
    second = next_publication(first, desired(gone), (), NOW)
    assert {each.pci for each in second.devices} == {gpu.pci for gpu in node.gpus}  # tainted ones need them too
    assert [each.name for each in second.counter_sets] == ["gpu-0-counter-set", "gpu-1-counter-set"]
    third = next_publication(second, desired(gone), (), NOW + 60 * S)
    assert [each.name for each in third.counter_sets] == ["gpu-0-counter-set"]


def test_a_claim_of_a_removed_device_brings_it_back() -> None:
    node = factory.inventory(A100, enabled=True)
    first = after(Publication(), node)
    assert find(first, "gpu-0-mig-1g5gb-19-0") is None
    assert find(after(first, node, "gpu-0-mig-1g5gb-19-0"), "gpu-0-mig-1g5gb-19-0") is not None


def test_new_devices_wait_for_the_room_of_tainted_ones() -> None:
    every = desired(factory.inventory(f"{A100}*8", enabled=True), (), PublishPolicy(per_profile=50)).devices
    old, new = every[:40], every[40:60]
    spare = [msgspec.structs.replace(each, name=f"{each.name}-x") for each in old[:14]]
    first = next_publication(Publication((*old, *spare)), PublishedChoice((*old, *new)), (), NOW)
    assert len(first.devices) == 64
    assert len(first.hidden) == 14
    assert [each.name for each in first.devices[40:50]] == [each.name for each in new[:10]]
    second = next_publication(first, PublishedChoice((*old, *new)), (), NOW + 10 * S)
    assert [each.name for each in second.devices] == [each.name for each in (*old, *new)]


def test_a_taint_without_a_valid_time_is_old() -> None:
    node = factory.inventory(A100, enabled=True)
    device = after(Publication(), node).devices[0]
    for text in (None, "soon"):
        tainted = msgspec.structs.replace(device, taints=(DeviceTaint(HIDDEN_TAINT, "NoSchedule", "", text),))
        since = hidden_since(tainted)
        assert since is not None
        assert since.year == 1970
        assert next_publication(Publication((tainted,)), PublishedChoice(), (), NOW).devices == ()
    assert hidden_since(device) is None
