"""Harvester's Addon laws: whatever people, upgrades and nodes do, pcidevices and Aliquot never serve one node, and the
choice of a node lasts.
"""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.kubernetes.client.objects import ObjectMeta, OwnerReference, Pod, PodStatus
from aliquot.kubernetes.kinds.harvester_names import WITHOUT_PCIDEVICES
from aliquot.kubernetes.manifests import pcidevices_addon
from aliquot.kubernetes.virtual_machines.agent.pcidevices_conflict import pcidevices_pod
from support.harvester_addon import DAEMON_SET, GPU_PAGES, SKIP, Harvester, RefusedError, shipped_values
from support.selection import laws

CONFIG = pcidevices_addon.chart_config()
LABELED = {WITHOUT_PCIDEVICES: "true"}
AFFINITY = CONFIG["spec"]["valuesContent"]
NODES = ("one", "two", "three")
SWITCHES, MOVES = ("enable", "disable", "upgrade", "edit", "skip"), ("join", "leave", "label", "unlabel", "reinstall")
STEPS = (*SWITCHES, *MOVES, "vm", "no-vm")


def harvester(**nodes: dict[str, str]) -> Harvester:
    cluster = Harvester(nodes=nodes)
    cluster.apply(CONFIG)
    cluster.enable()
    cluster.settle()
    return cluster


def idle(cluster: Harvester, node: str) -> bool:
    """Report whether our agent stands by on a node, by its own rule."""
    owner = OwnerReference("DaemonSet", DAEMON_SET)
    meta = ObjectMeta(name=node, namespace="harvester-system", owner_references=(owner,))
    pods = [Pod(metadata=meta, status=PodStatus(phase="Running"))] if node in cluster.pods else []
    return pcidevices_pod(pods) is not None


def step(cluster: Harvester, what: str, node: str, number: int) -> None:
    """Apply one event to the cluster. Raise RefusedError if Harvester refuses it."""
    match what:
        case "enable":
            cluster.enable()
        case "disable":
            cluster.disable()
        case "upgrade":
            cluster.upgrade(f"v1.9.{number}")
        case "edit":
            cluster.edit_values(shipped_values("mine") + "debug: true\naffinity: {podAntiAffinity: {}}\n")
        case "vm" | "no-vm":
            cluster.vms[f"vm-{node}"] = what == "vm"
        case "leave":
            cluster.nodes.pop(node, None)
        case "join":
            cluster.nodes.setdefault(node, {})
        case "label" | "unlabel" if node in cluster.nodes:
            cluster.nodes[node] = dict(LABELED) if what == "label" else {}
        case "reinstall" if node in cluster.nodes:
            cluster.nodes[node] = {}
        case "skip":
            cluster.addon.annotations[SKIP] = "true"


@laws(200)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(NODES), st.booleans()), max_size=25))
def test_a_node_keeps_its_controller_whatever_happens_to_the_addon(history: list[tuple[str, str, bool]]) -> None:
    cluster = harvester(one=dict(LABELED), two={})
    for number, (what, node, settled) in enumerate(history):
        before = cluster.addon.enabled
        with suppress(RefusedError):
            step(cluster, what, node, number)
        used = any(cluster.vms.values()) and SKIP not in cluster.addon.annotations
        assert not (before and not cluster.addon.enabled and used), "disabled below a VM"
        if settled:
            cluster.settle()
            _each_node_has_its_controller(cluster)
    cluster.settle()
    _each_node_has_its_controller(cluster)


def _each_node_has_its_controller(cluster: Harvester) -> None:
    assert cluster.pages() == (GPU_PAGES if cluster.addon.enabled else ())
    for node, labels in cluster.nodes.items():
        ours = WITHOUT_PCIDEVICES in labels
        assert (node in cluster.pods) == (cluster.addon.enabled and not ours), node
        assert idle(cluster, node) == (node in cluster.pods), "one controller, never two"


@pytest.mark.parametrize("way", ["values", "patch"])
def test_values_of_the_addon_and_a_patched_daemon_set_do_not_last(way: str) -> None:
    # What the guide said before: the model must be able to fail.
    cluster = Harvester(nodes={"one": dict(LABELED)})
    cluster.enable()
    cluster.settle()
    if way == "values":
        cluster.edit_values(shipped_values("v1.8.0") + AFFINITY)
    else:
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": pcidevices_addon.node_terms()}}
        cluster.patch_daemon_set({"affinity": affinity})
    cluster.settle()
    assert not cluster.pods
    if way == "values":
        cluster.upgrade("v1.9.0")
    else:
        cluster.disable()
        cluster.settle()
        cluster.enable()
    cluster.settle()
    assert cluster.pods == {"one"}


def test_the_addon_needs_no_disabling() -> None:
    # Harvester refuses it while a stopped VM has a device, and each GPU page would be a banner.
    cluster = harvester(one=dict(LABELED))
    cluster.vms["stopped"] = 1
    with pytest.raises(RefusedError, match="stopped"):
        cluster.disable()
    assert (cluster.pods, cluster.pages()) == (set(), GPU_PAGES)
    cluster.addon.annotations[SKIP] = "true"
    cluster.disable()
    with pytest.raises(RefusedError, match="in progress"):
        cluster.enable()
    cluster.settle()
    assert cluster.pages() == ()


def test_uninstalling_gives_the_nodes_back() -> None:
    cluster = harvester(one=dict(LABELED), two={})
    assert cluster.pods == {"two"}
    cluster.configs.clear()
    cluster.settle()
    assert cluster.pods == {"one", "two"}
