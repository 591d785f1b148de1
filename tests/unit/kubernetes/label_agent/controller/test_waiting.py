"""Pods that are pending forever because of a misspelled name: the hint for each, and its frequency."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from aliquot.kubernetes.client import informer
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, ForbiddenError, NotFoundError
from aliquot.kubernetes.client.objects import Node, NodeSpec, NodeStatus, ObjectMeta
from aliquot.kubernetes.client.pending_pod import UNSCHEDULED, PendingPod
from aliquot.kubernetes.client.watch import FullList, ObjectChanged, WatchTiming
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.controller.hints import build_fleet, hints, partitionable_nodes
from aliquot.kubernetes.label_agent.controller.pending_pods import MAX_EVENTS, PendingPodQueue, PendingPodWatcher, event
from aliquot.kubernetes.label_agent.controller.pod_demand import PodDemand, demand

PRODUCT = names.PRODUCT_LABEL
A100, A30 = "NVIDIA-A100-SXM4-40GB", "NVIDIA-A30"
MIXED = {PRODUCT: A100, names.STRATEGY_LABEL: "mixed", names.DEPLOY_LABEL: "true", names.CONFIG_LABEL: "all-1g.5gb"}
SINGLE = MIXED | {names.STRATEGY_LABEL: "single"}
SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-3g.20gb"


def node(labels: dict[str, str], *, name: str = "gpu-1", unavailable: bool = False, **offered: str) -> Node:
    capacity = {f"nvidia.com/{key.replace('__', '-').replace('_', '.')}": count for key, count in offered.items()}
    return Node(
        ObjectMeta(name=name, labels=labels), NodeSpec(unschedulable=unavailable), NodeStatus(capacity, capacity)
    )


def pod(name: str = "p", uid: str = "u", resources: tuple[str, ...] = (), **spec: Any) -> PendingPod:
    containers = [{"resources": {"limits": dict.fromkeys(resources, "1")}}]
    meta = {"name": name, "namespace": "team", "uid": uid}
    return msgspec.convert({"metadata": meta, "spec": {"containers": containers} | spec}, PendingPod)


def terms(*terms: list[dict[str, object]]) -> dict[str, object]:
    required = {"nodeSelectorTerms": [{"matchExpressions": each} for each in terms]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def wanted(given: PendingPod) -> PodDemand:
    found = demand(given)
    assert found is not None
    return found


def messages(given: PendingPod, *nodes: Node, config_map: str = "") -> tuple[str, ...]:
    return hints(wanted(given), build_fleet(nodes), config_map)


def need(key: str, *values: str, operator: str = "In") -> dict[str, object]:
    return {"key": key, "operator": operator} | ({"values": list(values)} if values else {})


# -- nodes that would accept a pod

HERE = {PRODUCT: A100, "nvidia.com/gpu.count": "8", "zone": "a"}


@pytest.mark.parametrize(
    ("expressions", "fits"),
    [
        ([need(PRODUCT, A30, A100)], True),
        ([need(PRODUCT, A30)], False),
        ([need(PRODUCT, A30, operator="NotIn"), need("no.such/label", "x", operator="NotIn")], True),
        ([need(PRODUCT, A100, operator="NotIn")], False),
        ([need(PRODUCT, operator="Exists")], True),
        ([need(PRODUCT, operator="DoesNotExist")], False),
        ([need("nvidia.com/gpu.count", "4", operator="Gt")], True),
        ([need("nvidia.com/gpu.count", "8", operator="Gt")], False),
        ([need("nvidia.com/gpu.count", "9", operator="Lt")], True),
        ([need("zone", "9", operator="Lt"), need(PRODUCT, A100)], False),
        ([need(PRODUCT, A100), need("zone", "b")], False),
    ],
)
def test_node_affinity_as_the_scheduler_reads_it(expressions: list[dict[str, object]], fits: bool) -> None:
    about = need(PRODUCT, operator="Exists")
    given = pod(affinity=terms([about, *expressions]), nodeSelector={"zone": "a"})
    assert wanted(given).fits(node(HERE)) is fits
    assert wanted(pod(affinity=terms([about, *expressions], [about]))).fits(node(HERE))
    elsewhere = pod(affinity=terms([about, *expressions]), nodeSelector={"zone": "b"})
    assert not wanted(elsewhere).fits(node(HERE))


def test_a_term_by_name_and_an_empty_term() -> None:
    def given(*several: dict[str, object]) -> PendingPod:
        required = {"nodeSelectorTerms": list(several)}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        return pod(affinity=affinity, nodeSelector={PRODUCT: A100})

    assert wanted(given({"matchFields": [need("metadata.name", "gpu-1")]})).fits(node(HERE))
    assert not wanted(given({"matchFields": [need("metadata.name", "gpu-2")]})).fits(node(HERE))
    assert not wanted(given({})).fits(node(HERE))


@pytest.mark.parametrize(
    "given",
    [
        pod(),
        pod(resources=("cpu", "nvidia.com/gpu", "amd.com/gpu")),
        pod(nodeSelector={"kubernetes.io/arch": "arm64", "disktype": "ssd"}),
        pod(nodeSelector={PRODUCT: "A100"}, schedulingGates=[{"name": "example.com/later"}]),
        msgspec.structs.replace(
            pod(nodeSelector={PRODUCT: "A100"}),
            metadata=ObjectMeta(name="p", deletion_timestamp="2026-01-01T00:00:00Z"),
        ),
    ],
)
def test_pods_that_are_none_of_our_business(given: PendingPod) -> None:
    assert demand(given) is None


# -- labels


def test_the_product_without_its_makers_name() -> None:
    given = pod(nodeSelector={PRODUCT: "A100-SXM4-40GB"})
    sentence = f"node selector {PRODUCT}=A100-SXM4-40GB matches no node: did you mean {A100}?"
    assert messages(given, node(MIXED), node({}, name="cpu-1")) == (sentence,)
    assert messages(given, node({PRODUCT: A30})) == ()
    assert messages(given, node(MIXED), node({PRODUCT: "A100-SXM4-40GB"}, name="odd")) == ()


@pytest.mark.parametrize("label", ["nvidia.con/gpu.product", "nvidia.com/gpu-product", "gpu.product"])
@pytest.mark.parametrize("value", [A100, "A100-SXM4-40GB"])
def test_a_misspelt_label(label: str, value: str) -> None:
    start = f"{label}={value} matches no node: did you mean {PRODUCT}={A100}?"
    assert messages(pod(nodeSelector={label: value}), node(MIXED)) == (f"node selector {start}",)
    assert messages(pod(affinity=terms([need(label, value)])), node(MIXED)) == (f"node affinity {start}",)
    assert messages(pod(nodeSelector={label: A30}), node(MIXED)) == ()
    assert messages(pod(nodeSelector={label: value}), node(MIXED), node({label: value}, name="odd")) == ()


def test_a_misspelt_config_and_a_label_that_must_be_there() -> None:
    (sentence,) = messages(pod(nodeSelector={names.CONFIG_LABEL: "all-1g.5g"}), node(MIXED))
    assert sentence.endswith("matches no node: did you mean all-1g.5gb?")
    (sentence,) = messages(pod(affinity=terms([need("nvidia.con/mig.strategy", operator="Exists")])), node(MIXED))
    assert sentence == "node affinity nvidia.con/mig.strategy matches no node: did you mean nvidia.com/mig.strategy?"


def test_strategy_single_has_the_profile_in_the_name() -> None:
    (sentence,) = messages(pod(nodeSelector={PRODUCT: A30}), node({PRODUCT: f"{A30}-MIG-1g.6gb"}))
    wanted = "under strategy single the MIG profile is part of the name, NVIDIA-A30-MIG-1g.6gb"
    assert sentence == f"node selector {PRODUCT}={A30} matches no node: {wanted}"
    assert messages(pod(nodeSelector={PRODUCT: A30}), node({PRODUCT: f"{A30}-MIG-INVALID"})) == ()


def test_nothing_is_reported_while_one_term_fits_or_the_label_is_right_and_something_else_is_missing() -> None:
    given = pod(affinity=terms([need(PRODUCT, "A100-SXM4-40GB")], [need(PRODUCT, A100)]))
    assert messages(given, node(MIXED)) == ()
    assert messages(pod(nodeSelector={PRODUCT: A100, "zone": "b"}), node(MIXED)) == ()
    both = messages(pod(nodeSelector={PRODUCT: "a100-sxm4-40gb", "nvidia.con/mig.strategy": "mixed"}), node(MIXED))
    assert len(both) == 2


# -- resources


@pytest.mark.parametrize("asked", ["nvidia.com/mig-1g.5g", "nvidia.con/mig-1g.5gb", "nvidia.com/mig-1g.7gb"])
def test_a_resource_that_is_offered_under_another_name(asked: str) -> None:
    sentence = f"no node offers {asked}: did you mean {SMALL}?"
    assert messages(pod(resources=(asked,)), node(MIXED, mig__1g_5gb="7")) == (sentence,)


def test_whole_gpus_of_another_domain() -> None:
    sentence = "no node offers nvidia.con/gpu: did you mean nvidia.com/gpu?"
    assert messages(pod(resources=("nvidia.con/gpu",)), node({PRODUCT: A30}, gpu="4")) == (sentence,)


def test_a_misspelt_resource_that_no_node_offers_yet() -> None:
    (sentence,) = messages(pod(resources=("nvidia.com/mig-3g.20g",)), node(MIXED, mig__1g_5gb="7"))
    assert sentence == f"no node offers nvidia.com/mig-3g.20g: did you mean {LARGE}?"


def test_a_profile_that_a_node_can_offer() -> None:
    small = node(MIXED, mig__1g_5gb="7")
    sentence = f"no node offers {LARGE} now; gpu-1 can: kubectl label node gpu-1 {names.CONFIG_LABEL}=all-3g.20gb"
    assert messages(pod(resources=(LARGE,)), small) == (f"{sentence} --overwrite",)
    assert messages(pod(resources=("nvidia.com/mig-1g.5gb.me",)), small)[0].endswith("=all-1g.5gb.me --overwrite")
    (sentence,) = messages(pod(resources=(LARGE,)), small, config_map="team-configs")
    assert sentence.endswith("gpu-1 can, with a named config of ConfigMap team-configs that creates 3g.20gb")
    (sentence,) = messages(pod(resources=(LARGE,)), node(SINGLE))
    assert sentence == f"no node offers {LARGE}: gpu-1 could with MIG strategy mixed instead of single"


@pytest.mark.parametrize(
    "others",
    [
        [node(MIXED, name="b", mig__3g_20gb="1")],
        [node({LARGE + ".count": "2"}, name="b")],  # its device plugin restarts
        [node(MIXED | {names.CONFIG_LABEL: "all-3g.20gb"}, name="b")],
        [node(MIXED | {names.STATE_LABEL: "pending"}, name="b")],
    ],
)
def test_a_profile_that_is_there_or_on_its_way(others: list[Node]) -> None:
    assert messages(pod(resources=(LARGE,)), node(MIXED), *others) == ()


@pytest.mark.parametrize(
    "only",
    [
        node(MIXED, unavailable=True),
        node(MIXED | {names.DEPLOY_LABEL: "false"}),
        node(MIXED | {names.CAPABLE_LABEL: "false"}),
        node(MIXED | {PRODUCT: A30}),
        node(MIXED | {PRODUCT: "NVIDIA-X900"}),
        node({}),
    ],
)
def test_a_profile_that_no_node_can_offer(only: Node) -> None:
    assert messages(pod(resources=(LARGE,)), only) == ()


def test_only_nodes_that_the_pod_would_take_are_named() -> None:
    given = pod(resources=(LARGE,), nodeSelector={"kubernetes.io/hostname": "b"})
    assert messages(given, node(MIXED)) == ()
    (sentence,) = messages(given, node(MIXED), node(MIXED | {"kubernetes.io/hostname": "b"}, name="b"))
    assert "label node b " in sentence
    assert messages(pod(resources=("nvidia.com/mig-1c.3g.20gb",)), node(MIXED)) == ()


# -- the time and number of hints


def test_a_pod_gets_one_event_after_its_patience() -> None:
    queue, nodes = PendingPodQueue(30), [node(MIXED)]
    queue.put(pod(nodeSelector={PRODUCT: "A100-SXM4-40GB"}), 100)
    assert queue.has_recent_pods(129)
    assert queue.new_hints(build_fleet(nodes), 129) == []
    queue.put(pod(nodeSelector={PRODUCT: "A100-SXM4-40GB"}), 129)  # a change does not restart the wait
    (hint,) = queue.new_hints(build_fleet(nodes), 130)
    assert (hint.namespace, hint.name, hint.uid) == ("team", "p", "u")
    assert not queue.has_recent_pods(130)
    assert queue.new_hints(build_fleet(nodes), 131) == [hint]  # no hint was sent yet
    queue.record_sent(hint)
    assert queue.new_hints(build_fleet(nodes), 1000) == []
    queue.put(pod(uid="v", nodeSelector={PRODUCT: "A100-SXM4-40GB"}), 1000)
    queue.record_sent(hint)  # of the previous one
    assert [each.uid for each in queue.new_hints(build_fleet(nodes), 1030)] == ["v"]


def test_pods_that_go_or_were_mended_are_forgotten() -> None:
    queue = PendingPodQueue(30)
    for name in ("a", "b"):
        queue.put(pod(name, nodeSelector={PRODUCT: "A100-SXM4-40GB"}), 0)
    queue.drop(pod("a").key)
    queue.put(pod("b"), 1)
    assert len(queue) == 0
    assert queue.new_hints(build_fleet([node(MIXED)]), 100) == []


def test_no_pod_gets_more_than_a_few_events_however_nodes_change() -> None:
    queue = PendingPodQueue(0)
    queue.put(pod(resources=(LARGE,)), 0)
    logged = []
    for number in range(10):
        for hint in queue.new_hints(build_fleet([node(MIXED, name=f"gpu-{number}")]), number):
            queue.record_sent(hint)
            logged.append(hint.message)
    assert len(logged) == len(set(logged)) == MAX_EVENTS


def test_events_have_names_that_follow_from_what_they_say() -> None:
    queue = PendingPodQueue(0)
    queue.put(pod("p" * 253, nodeSelector={PRODUCT: "A100-SXM4-40GB"}), 0)
    (hint,) = queue.new_hints(build_fleet([node(MIXED)]), 0)
    first, other = event(hint, 0), event(msgspec.structs.replace(hint, uid="v"), 0)
    assert len(first["metadata"]["name"]) <= 253
    assert first["metadata"]["name"] == event(hint, 9)["metadata"]["name"] != other["metadata"]["name"]
    assert first["firstTimestamp"] == "1970-01-01T00:00:00Z"


def test_a_node_whose_instances_are_held_is_not_proposed() -> None:
    # Another node is proposed. If all are in use, the hint reports only that.
    given = wanted(pod(resources=(LARGE,)))
    nodes = [node(MIXED, name="gpu-1"), node(MIXED, name="gpu-2")]
    assert partitionable_nodes(given, build_fleet(nodes)) == {"gpu-1"}
    assert partitionable_nodes(given, build_fleet(nodes, {"gpu-1"})) == {"gpu-2"}
    (sentence,) = hints(given, build_fleet(nodes, {"gpu-1"}))
    assert "kubectl label node gpu-2" in sentence
    assert hints(given, build_fleet(nodes, {"gpu-1", "gpu-2"})) == (
        f"no node offers {LARGE} now; gpu-1 could, but its GPUs are in use",
    )


def test_who_is_on_a_node_is_asked_only_where_a_hint_would_name_it() -> None:
    there = build_fleet([node(MIXED, mig__1g_5gb="7")])
    assert partitionable_nodes(wanted(pod(resources=(SMALL,))), there) == frozenset()
    queue = PendingPodQueue(patience_s=10)
    queue.put(pod(resources=(LARGE,)), 0)
    assert queue.partitionable_nodes(there, 9) == frozenset()
    assert queue.partitionable_nodes(there, 10) == {"gpu-1"}


@pytest.mark.parametrize(
    ("error", "held"), [(NotFoundError, False), (ForbiddenError, True), (ApiUnavailableError, True)]
)
def test_a_node_whose_gpus_cannot_be_read_counts_as_held(error: type[ApiError], held: bool) -> None:
    class Refusing:
        async def get(self, *_: object) -> object:
            raise error("no")

    waiting = cast(PendingPodWatcher, SimpleNamespace(api=Refusing()))
    assert asyncio.run(PendingPodWatcher._held(waiting, "gpu-1")) is held


def test_of_pods_that_wait_only_those_that_demand_something_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    # A cluster may have tens of thousands of pods that are pending for other reasons.

    async def watch(*_: object, **selected: object) -> AsyncGenerator[FullList[PendingPod] | ObjectChanged[PendingPod]]:
        assert (selected["namespace"], selected["fields"]) == ("*", UNSCHEDULED)
        yield FullList((pod("kept", resources=(LARGE,)), pod("plain"), pod("mended", resources=(LARGE,))))
        yield ObjectChanged(pod("mended"))
        await asyncio.sleep(60)

    async def play() -> tuple[int, list[str]]:
        monkeypatch.setattr(informer, "watch", watch)
        waiting = PendingPodWatcher(cast(Any, None), list, cast(Any, None), patience_s=0, timing=WatchTiming())
        waiting.set_active(True)
        task = asyncio.create_task(waiting.run())
        await asyncio.sleep(0.01)
        counts = waiting.counts
        found = [each.name for each in gc.get_objects() if isinstance(each, PendingPod) and each.name != "p"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return counts.pods if counts is not None else -1, found

    assert asyncio.run(play()) == (1, ["kept"])
