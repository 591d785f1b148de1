"""Pools of vGPUs on simulated nodes: the decision writes the objects, and the agent's work makes the vGPUs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL, VGPUPool
from aliquot.kubernetes.virtual_machines.pools.agent_watch import AgentWatch
from aliquot.kubernetes.virtual_machines.pools.pool_decision import decide_pools
from support.admissions import resource_claim
from support.selection import parts
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import NOW
from unit.kubernetes.virtual_machines.pools.pool_cluster import EIGHT_Q, FOUR_Q, Cluster


@pytest.mark.parametrize("template", ["a2:mdev", "a2:vfio"])
def test_a_pool_enables_the_gpu_and_as_many_devices(tmp_path: Path, template: str) -> None:
    cluster = Cluster(tmp_path, n1=template)
    cluster.pool("desk")
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 4})}
    assert cluster.ready("desk") == ("True", "Configured")
    assert len(cluster.devices("desk")) == cluster.pools["desk"]["status"]["ready"] == 4
    labelled = [b for b in cluster.nodes["n1"].store.of("VGPUDevice").values() if POOL_LABEL in b["metadata"]["labels"]]
    assert [each["spec"]["enabled"] for each in labelled] == [True] * 4


def test_a_pool_of_the_cluster_fills_one_gpu_before_it_takes_the_next(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:vfio")
    cluster.pool("desk", count=3)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 3})}
    cluster.pools["desk"]["spec"]["count"] = 6
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 4}), "n2": Counter({FOUR_Q: 2})}


def test_places(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev*2", n3="a2:mdev")
    cluster.labels["n3"]["pool"] = "desks"
    cluster.pool("node", count=5, nodeName="n2")
    cluster.pool("card", count=1, sriovGPUDevice="n1-000001000")
    cluster.pool("labels", count=2, type_name=EIGHT_Q, nodeSelector={"pool": "desks"})
    cluster.settle()
    assert cluster.types() == {
        "n1": Counter({FOUR_Q: 1}),
        "n2": Counter({FOUR_Q: 5}),
        "n3": Counter({EIGHT_Q: 2}),
    }


def test_a_pool_that_does_not_fit_says_how_many_do_and_why_not_more(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="l40s:vfio")
    cluster.pool("first", EIGHT_Q, 1)
    cluster.settle()
    cluster.pool("desk", count=4)
    cluster.settle()
    assert cluster.ready("first") == ("True", "Configured")
    assert cluster.ready("desk") == ("False", "Insufficient")
    assert "0 of 4 vGPUs of type NVIDIA A2-4Q fit" in cluster.message("desk")
    assert "n1-000001000 is full or has other sizes" in cluster.message("desk")
    assert "has no type NVIDIA A2-4Q" in cluster.message("desk")
    assert cluster.types() == {"n1": Counter({EIGHT_Q: 1})}


@pytest.mark.parametrize(
    ("type_name", "place", "reason", "message"),
    [
        ("A2-4Q", {}, "UnknownType", "near it is NVIDIA A2-4Q | next: kubectl edit vgpupool desk"),
        ("NVIDIA A2-5Q", {}, "UnknownType", "NVIDIA A2-4Q, NVIDIA A2-2Q | next: kubectl edit vgpupool desk"),
        (FOUR_Q, {"nodeName": "n9"}, "Insufficient", "fit: node n9 does not exist | next: kubectl get nodes"),
        (
            FOUR_Q,
            {"sriovGPUDevice": "n1-x"},
            "Insufficient",
            "fit: SRIOVGPUDevice n1-x does not exist | next: kubectl get sriovgpudevices",
        ),
    ],
)
def test_a_misspelled_name_is_reported_as_such(
    tmp_path: Path, type_name: str, place: dict[str, str], reason: str, message: str
) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", type_name, 1, **place)
    cluster.settle()
    assert cluster.ready("desk") == ("False", reason)
    assert cluster.message("desk").endswith(message)


def test_it_takes_no_vgpu_that_was_enabled_without_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    one = cluster.nodes["n1"].kubectl("SRIOVGPUDevice", "n1-000001000", enabled=True)
    one.kubectl("VGPUDevice", "n1-000001004", enabled=True, vGPUTypeName=FOUR_Q)
    cluster.pool("desk", count=4)
    cluster.settle()
    assert cluster.ready("desk") == ("False", "Insufficient")
    assert "3 of 4" in cluster.message("desk")
    assert "n1-000001004" not in cluster.devices("desk")
    assert cluster.types() == {"n1": Counter({FOUR_Q: 4})}


def test_it_shrinks_by_idle_devices_and_waits_for_vms(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk")
    cluster.settle()
    first, second = cluster.devices("desk")[:2]
    cluster.run_vm(first)
    cluster.run_vm(second)
    cluster.pools["desk"]["spec"]["count"] = 1
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2})}
    assert cluster.ready("desk") == ("False", "Held")
    assert f"VM vm-{first}" in cluster.message("desk")
    del cluster.held[first]
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 1})}
    assert cluster.devices("desk") == [second]
    assert cluster.ready("desk") == ("True", "Configured")


@pytest.mark.parametrize("template", ["a2:mdev", "a2:vfio"])
def test_it_leaves_what_a_vm_has_by_a_claim(tmp_path: Path, template: str) -> None:
    cluster = Cluster(tmp_path, n1=template)
    cluster.pool("desk", count=2)
    cluster.settle()
    (first, second) = cluster.devices("desk")
    cluster.run_claiming_vm(second)
    cluster.settle()
    assert cluster.pools["desk"]["status"]["inUse"] == 1
    cluster.pools["desk"]["spec"]["count"] = 0
    cluster.settle()
    assert cluster.devices("desk") == [second]
    assert cluster.ready("desk") == ("False", "Held")
    words = f"{second} is in use by ResourceClaim vm-{second}-gpu of VM vm-{second} in namespace default: stop the VM"
    assert words in cluster.message("desk")
    assert "| next: kubectl patch vm" in cluster.message("desk")
    cluster.held.clear()
    cluster.settle()
    assert cluster.types() == {}
    assert first != second


def test_it_keeps_off_a_gpu_that_a_vm_has_by_a_claim(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:vfio")
    gpu = cluster.gpu("n1")["spec"]["address"]
    cluster.passed = [resource_claim("whole", "virt-launcher-render-x7k2p", node="n1", function=gpu)]
    cluster.pool("desk", count=1)
    cluster.settle()
    assert not cluster.gpu("n1")["spec"]["enabled"]
    assert cluster.ready("desk") == ("False", "Insufficient")
    assert "is in use by ResourceClaim whole of pod virt-launcher-render-x7k2p" in cluster.message("desk")
    cluster.passed.clear()
    cluster.settle()
    assert cluster.ready("desk") == ("True", "Configured")


def test_a_vgpu_that_a_vm_opened_after_it_was_disabled_is_named(tmp_path: Path) -> None:
    # The VM was not known yet when the pool changed. The agent keeps what a VM has open.
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=1)
    cluster.settle()
    (device,) = cluster.devices("desk")
    cluster.nodes["n1"].start_vm(cluster.nodes["n1"].store.get("VGPUDevice", device)["status"]["uuid"])
    cluster.pools["desk"]["spec"]["vGPUTypeName"] = EIGHT_Q
    cluster.settle()
    assert cluster.ready("desk") == ("False", "Insufficient")
    assert f"keeps NVIDIA A2-4Q on {device} (NVIDIA A2-4Q is in use by" in cluster.message("desk")


def test_another_type_replaces_idle_devices_and_then_the_rest(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    held, _ = cluster.devices("desk")
    cluster.run_vm(held)
    cluster.pools["desk"]["spec"]["vGPUTypeName"] = EIGHT_Q
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 1}), "n2": Counter({EIGHT_Q: 1})}
    assert cluster.ready("desk") == ("False", "Held")
    cluster.held.clear()
    cluster.settle()
    assert sum(map(Counter.total, cluster.types().values())) == 2
    assert cluster.ready("desk") == ("True", "Configured")


def test_a_device_that_was_disabled_by_hand_comes_back(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    before = cluster.devices("desk")
    cluster.nodes["n1"].kubectl("VGPUDevice", before[1], enabled=False, vGPUTypeName="")
    cluster.settle()
    assert cluster.devices("desk") == before


def test_a_deleted_pool_leaves_the_devices_of_vms(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=3)
    cluster.settle()
    held = cluster.devices("desk")[1]
    cluster.run_vm(held)
    cluster.delete("desk")
    cluster.settle()
    assert cluster.pools == {}
    assert cluster.types() == {"n1": Counter({FOUR_Q: 1})}
    assert POOL_LABEL not in cluster.nodes["n1"].store.get("VGPUDevice", held)["metadata"]["labels"]


def test_a_node_that_leaves_is_replaced(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=3)
    cluster.settle()
    del cluster.nodes["n1"]
    cluster.settle()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 3})}


def test_a_mig_backed_pool_requests_its_instances(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    cluster.pool("small", "GRID A100X-1-5C", 3)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({"GRID A100X-1-5C": 3})}
    assert [each.partition("@")[0] for each in cluster.nodes["n1"].instances()] == ["1g.5gb"] * 3


def test_a_mig_backed_pool_grows_beside_another_one_while_there_is_place(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    cluster.pool("small", "GRID A100X-1-5C", 2)
    cluster.pool("big", "GRID A100X-3-20C", 1)
    cluster.settle()
    first = cluster.devices("small")
    cluster.run_vm(first[0])
    cluster.pools["small"]["spec"]["count"] = 3
    cluster.settle()
    assert cluster.types() == {"n1": Counter({"GRID A100X-1-5C": 3, "GRID A100X-3-20C": 1})}
    assert set(first) < set(cluster.devices("small"))
    cluster.pools["big"]["spec"]["count"] = 2
    cluster.settle()
    assert cluster.ready("big") == ("False", "Insufficient")
    assert "no place for one" in cluster.message("big")
    assert cluster.types() == {"n1": Counter({"GRID A100X-1-5C": 3, "GRID A100X-3-20C": 1})}


def test_a_pool_waits_for_instances_that_are_being_created(tmp_path: Path) -> None:
    # The agent has not seen the request yet: no other GPU is taken meanwhile.
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio", n2="a100-sxm4-40gb:vfio")
    cluster.pool("small", "GRID A100X-1-5C", 2)
    cluster.settle()
    cluster.pools["small"]["spec"]["count"] = 3
    pools = [msgspec.convert(body, VGPUPool) for body in cluster.pools.values()]
    (first, *_) = decide_pools(pools, cluster.snapshot(), NOW)
    assert first.name == "n1-000001000"
    cluster._apply(first.kind.TYPE.kind, first.name, first.body)
    assert [each for each in decide_pools(pools, cluster.snapshot(), NOW) if not each.status] == []
    cluster.settle()
    assert cluster.types() == {"n1": Counter({"GRID A100X-1-5C": 3})}


def test_a_row_that_a_merge_patch_dropped_is_requested_all_the_same(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:mdev")
    (gpu,) = cluster.nodes["n1"].store.of("SRIOVGPUDevice")
    cluster.nodes["n1"].kubectl("SRIOVGPUDevice", gpu, enabled=True)
    cluster.nodes["n1"].kubectl("MigConfiguration", gpu, profileSpec=[{"id": 0, "name": "MIG 7g.40gb", "requested": 0}])
    cluster.pool("pool", "GRID A100X-1-5C", 2)
    cluster.settle()
    assert cluster.pools["pool"]["status"]["ready"] == 2


def test_a_time_sliced_pool_keeps_a_mig_capable_gpu_out_of_mig(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    cluster.pool("big", "GRID A100X-10C", 2)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({"GRID A100X-10C": 2})}


def test_a_reboot_changes_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=3)
    cluster.settle()
    before = cluster.devices("desk")
    cluster.nodes["n1"].reboot()
    cluster.settle()
    assert cluster.devices("desk") == before
    assert cluster.types() == {"n1": Counter({FOUR_Q: 3})}


def test_a_board_without_sriov(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="t4:mdev")
    cluster.pool("old", "GRID T4-4Q", 3)
    cluster.settle()
    (gpu,) = cluster.nodes["n1"].node.whole.read().gpus
    assert [vgpu.type for vgpu in gpu.vgpus] == ["GRID T4-4Q"] * 3
    assert cluster.ready("old") == ("True", "Configured")


@pytest.mark.parametrize(
    ("template", "type_name"),
    [("a2:mdev", FOUR_Q), ("a100-sxm4-40gb:vfio", "GRID A100X-1-5C"), ("a100-sxm4-40gb:vfio", "GRID A100X-10C")],
    ids=["without-mig", "mig-backed", "time-sliced"],
)
def test_it_leaves_a_second_gpu_alone_while_the_first_one_is_prepared(
    tmp_path: Path, template: str, type_name: str
) -> None:
    cluster = Cluster(tmp_path, n1=template, n2=template).watch_every_write()
    cluster.pool("desk", type_name, 3)
    cluster.settle()
    assert cluster.types() == {"n1": Counter({type_name: 3})}
    assert not cluster.gpu("n2")["spec"]["enabled"]


def test_it_waits_for_a_driver_that_is_being_installed_but_not_for_ever(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    for one in cluster.nodes.values():
        one.blind = "the pod of the driver starts"
    cluster.pool("desk", count=3)
    cluster.settle()
    enabled = [name for name in cluster.nodes if cluster.gpu(name)["spec"]["enabled"]]
    assert enabled == ["n1"]
    assert "the pod of the driver starts" in cluster.message("desk")
    assert cluster.message("desk").endswith("| next: kubectl wait vgpupool/desk --for condition=Ready")
    cluster.nodes["n2"].blind = ""
    cluster.now += 1200
    cluster.settle()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 3})}


def test_another_type_waits_for_the_devices_that_it_replaces(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev").watch_every_write()
    cluster.pool("desk", count=2)
    cluster.settle()
    cluster.pools["desk"]["spec"]["vGPUTypeName"] = EIGHT_Q
    cluster.settle()
    assert cluster.types() == {"n1": Counter({EIGHT_Q: 2})}
    assert not cluster.gpu("n2")["spec"]["enabled"]


def test_it_keeps_off_a_layout_that_a_user_requests_or_removes(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a100-sxm4-40gb:vfio")
    one = cluster.nodes["n1"].kubectl("SRIOVGPUDevice", "n1-000001000", enabled=True)
    rows = one.store.get("MigConfiguration", "n1-000001000")["spec"]["profileSpec"]
    requested = [{**row, "requested": int(row["name"] == "MIG 1g.5gb")} for row in rows]
    one.store.patch("MigConfiguration", "n1-000001000", {"spec": {"enabled": True, "profileSpec": requested}})
    cluster.pool("big", "GRID A100X-10C", 1)
    cluster.settle()
    assert "is partitioned with MIG" in cluster.message("big")
    assert len(one.instances()) == 1
    cluster.delete("big")
    cluster.settle()
    one.store.patch("MigConfiguration", "n1-000001000", {"spec": {"enabled": False}})
    cluster.pool("small", "GRID A100X-1-5C", 1)
    cluster.decide()
    assert cluster.types() == {}
    assert not any(each["spec"]["enabled"] for each in one.store.of("VGPUDevice").values())


def test_a_gpu_that_is_full_with_foreign_vgpus_is_no_promise(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    one = cluster.nodes["n1"].kubectl("SRIOVGPUDevice", "n1-000001000", enabled=True)
    for number in range(4):
        one.make_by_hand(f"0000:01:00.{number + 4}", 746, f"00000000-0000-0000-0000-00000000000{number}")
    one.settle()
    cluster.pool("desk", count=2)
    cluster.settle()
    assert cluster.types()["n2"] == Counter({FOUR_Q: 2})


def test_the_label_of_a_pool_that_is_gone_binds_nothing(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    one = cluster.nodes["n1"].kubectl("SRIOVGPUDevice", "n1-000001000", enabled=True)
    for name in one.store.of("VGPUDevice"):
        one.store.patch("VGPUDevice", name, {"metadata": {"labels": {POOL_LABEL: "gone"}}})
    cluster.pool("desk", count=2)
    cluster.settle()
    assert cluster.ready("desk") == ("True", "Configured")


def test_a_gpu_that_was_disabled_under_a_pool_is_enabled_with_its_devices(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="t4:mdev")
    cluster.pool("old", "GRID T4-4Q", 2)
    cluster.settle()
    store = cluster.nodes["n1"].store
    for name in cluster.devices("old"):
        store.patch("VGPUDevice", name, {"spec": {"enabled": False, "vGPUTypeName": ""}})
    store.patch("SRIOVGPUDevice", next(iter(store.of("SRIOVGPUDevice"))), {"spec": {"enabled": False}})
    cluster.settle()
    assert cluster.ready("old") == ("True", "Configured")


class Counted(dict[str, Any]):
    """A mapping that counts how often it is read as a whole."""

    reads = 0

    def values(self) -> Any:
        Counted.reads += 1
        return super().values()


def test_a_round_reads_the_devices_of_the_cluster_once_or_not_at_all(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev*2", n2="a2:mdev*2", n3="a2:mdev*2")
    cluster.pool("desk", count=40)
    cluster.settle()
    snapshot = cluster.snapshot()
    counted = msgspec.structs.replace(snapshot, vgpus=Counted(snapshot.vgpus))
    Counted.reads = 0
    assert decide_pools((), counted, NOW) == ()
    assert Counted.reads == 0
    decide_pools([msgspec.convert(cluster.pools["desk"], VGPUPool)], counted, NOW)
    assert Counted.reads <= 2


MIG_TYPES = ("GRID A100X-1-5C", "GRID A100X-3-20C", "GRID A100X-20C")


@pytest.mark.parametrize("seed", parts(4))
@pytest.mark.parametrize("types", [(FOUR_Q, EIGHT_Q), MIG_TYPES], ids=["A2", "A100"])
def test_any_history_comes_to_rest_and_takes_nothing_from_a_vm(
    tmp_path: Path, types: tuple[str, ...], seed: int
) -> None:
    chance = random.Random(seed)
    templates = ("a2:mdev*2", "a2:vfio") if types is not MIG_TYPES else ("a100-sxm4-40gb:vfio", "a100-sxm4-40gb:vfio")
    cluster = Cluster(tmp_path, **dict(zip(("n1", "n2"), templates, strict=True)))
    for name in "ab":
        cluster.pool(name, chance.choice(types), count=chance.randint(0, 5))
    story = []
    for _ in range(10):
        story.append(_event(cluster, chance, types))
        cluster.settle()
        for _ in range(len(cluster.dead) + 1 if cluster.dead else 0):  # one silent node after the other
            cluster.wait()
        live = {device for one in cluster.nodes.values() for device in map(one.name_of, one.live())}
        assert set(cluster.held) <= live, (seed, story)
        for name, pool in cluster.pools.items():
            state, reason = cluster.ready(name)
            assert reason in ("Configured", "Insufficient", "Held"), (seed, story, pool)
            if reason == "Insufficient":
                assert not offers(cluster, pool["spec"]["vGPUTypeName"]), (seed, story, pool)
            complete = pool["status"]["ready"] == pool["spec"]["count"] == len(cluster.devices(name))
            assert (state == "True") == complete, (seed, story, pool)
            if not cluster.dead:
                assert len(cluster.enabled(name)) == len(cluster.devices(name)), (seed, story, pool)


def offers(cluster: Cluster, type_name: str) -> list[str]:
    """Return the free devices on which the agents would create the type, and the GPUs that are not shared yet."""
    nodes = [one for name, one in cluster.nodes.items() if name not in cluster.dead]
    devices = [body for one in nodes for body in one.store.of("VGPUDevice").values()]
    free = [d for d in devices if not d["spec"]["enabled"] and type_name in d["status"].get("availableTypes", {})]
    gpus = [body for one in nodes for body in one.store.of("SRIOVGPUDevice").values()]
    return [body["metadata"]["name"] for body in (*free, *(gpu for gpu in gpus if not gpu["spec"]["enabled"]))]


def _event(cluster: Cluster, chance: random.Random, types: tuple[str, ...]) -> str:
    """Let one thing happen, to a controller that may be killed or behind. Return what it was."""
    match fate := chance.choice(("", "", "", "killed", "behind", "restarted")):
        case "behind":  # another leader has decided, and writes after this one
            planned = cluster.plan()
            happened = _happen(cluster, chance, types)
            cluster.decide()
            cluster.write(planned)
            return f"{happened}, {fate}"
        case "restarted":
            cluster.agents = AgentWatch()
    happened = _happen(cluster, chance, types)
    if fate == "killed":
        planned = cluster.plan()
        cluster.write(planned[: chance.randint(0, len(planned))])
        cluster.work()
    return f"{happened}, {fate}" if fate else happened


def _happen(cluster: Cluster, chance: random.Random, types: tuple[str, ...]) -> str:
    pool = cluster.pools[chance.choice(list(cluster.pools))]
    match kind := chance.choice(("count", "type", "vm", "stop", "hand", "reboot", "new", "die", "return")):
        case "count":
            pool["spec"]["count"] = chance.randint(0, 6)
        case "type":
            pool["spec"]["vGPUTypeName"] = chance.choice(types)
        case "vm":
            devices = [d for name in cluster.pools for d in cluster.devices(name) if d not in cluster.held]
            if devices:
                chance.choice((cluster.run_vm, cluster.run_claiming_vm))(chance.choice(devices))
        case "stop" if cluster.held:
            del cluster.held[chance.choice(list(cluster.held))]
        case "hand":
            _by_hand(cluster, chance, types[0])
        case "reboot" if not cluster.held:
            chance.choice(list(cluster.nodes.values())).reboot()
        case "new":
            cluster.delete(pool["metadata"]["name"])
            cluster.settle()
            cluster.pool(pool["metadata"]["name"], chance.choice(types), count=chance.randint(0, 4))
        case "die":
            cluster.dead.add(chance.choice(list(cluster.nodes)))
        case "return" if cluster.dead:
            cluster.dead.remove(chance.choice(sorted(cluster.dead)))
    return kind


def _by_hand(cluster: Cluster, chance: random.Random, type_name: str) -> None:
    """Enable or disable a device without the pools, as the webhook would allow it."""
    one = cluster.nodes[chance.choice(list(cluster.nodes))]
    if one.name in cluster.dead:
        return
    devices = [name for name in one.store.of("VGPUDevice") if name not in cluster.held]
    if not devices:
        return
    name = chance.choice(devices)
    device = one.store.get("VGPUDevice", name)
    if device["spec"]["enabled"]:
        one.kubectl("VGPUDevice", name, enabled=False, vGPUTypeName="")
    elif type_name in device["status"].get("availableTypes", {}):
        one.kubectl("VGPUDevice", name, enabled=True, vGPUTypeName=type_name)
