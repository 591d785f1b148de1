"""Objects of other nodes that reach an agent nevertheless: it ignores them, whatever is on its own bus."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One

PF, ONE, TYPE = "0000:01:00.0", "0000:01:00.4", "NVIDIA A100-4C"


def crowded(one: One) -> list[tuple[str, str]]:
    """Add a copy of all objects for another node, with functions that this node does not have."""
    added = []
    for (kind, name), body in list(one.store.objects.items()):
        other = copy.deepcopy(body)
        other["metadata"]["name"] = name.replace(f"{one.name}-000001", "other-000041")
        other["metadata"]["uid"] += "-other"
        if "nodename" in other["metadata"].get("labels", {}):
            other["metadata"]["labels"]["nodename"] = "other"
        for part in (other["spec"], other.get("status", {})):
            for field in ("nodeName", "address", "gpuAddress", "parentGPUDeviceAddress"):
                if field in part:
                    part[field] = part[field].replace("0000:01", "0000:41").replace(one.name, "other")
        key = (kind, other["metadata"]["name"])
        one.store.objects[key] = other
        added.append(key)
    return added


@pytest.mark.parametrize("kind", ["mdev", "vfio"])
@pytest.mark.parametrize("enabled", [True, False])
def test_another_nodes_objects_are_neither_ended_nor_written(tmp_path: Path, kind: str, *, enabled: bool) -> None:
    one = One(f"a100-sxm4-40gb:{kind}", tmp_path).settle()
    one.kubectl("SRIOVGPUDevice", one.name_of(PF), enabled=True)
    requests = one.intents()
    added = crowded(one)
    for what, name in added:
        if what != "PCIDevice":
            one.store.objects[what, name]["spec"]["enabled"] = enabled
    before = copy.deepcopy({key: one.store.objects[key] for key in added})
    assert {what for what, _ in added} >= {"SRIOVGPUDevice", "VGPUDevice", "MigConfiguration", "PCIDevice"}
    assert one.intents() == requests
    one.settle()
    assert {key: one.store.objects.get(key) for key in added} == before
