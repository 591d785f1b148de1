"""The story of ``make demo-machines``: from a GPU to VMs with vGPUs, a MIG layout, drift, and back."""

from __future__ import annotations

import json
from typing import Any

from tools.sandbox_machines import Machines

from support.kubevirt.objects import machine

GPU, FIRST, SECOND, THIRD, FOURTH, FIFTH = (f"node1-0000080{end}" for end in ("00", "04", "05", "06", "07", "10"))
CUT = "node2-000004000"
TYPE, RESOURCE = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q"
RAMFB = {"virtualGPUOptions": {"display": {"enabled": True, "ramFB": {"enabled": True}}}}


def story(box: Machines) -> None:
    from_a_card_to_a_machine(box)
    what_is_refused(box)
    how_many_are_left(box)
    a_layout_and_drift(box)
    and_back(box)
    print(
        "\nDone: shared, used, refused, counted, cut, drifted, given back. `make sandbox-machines` keeps one for you."
    )


def patch(kind: str, name: str, **spec: Any) -> str:
    return f"kubectl patch {kind} {name} --type merge -p '{json.dumps({'spec': spec}, separators=(',', ':'))}'"


def layout(places: dict[int, int], wanted: dict[int, int]) -> str:
    """Build a layout's patch. ``wanted`` counts by profile id; ``places`` are the profiles' indices in profileSpec."""
    rows = [{"op": "add", "path": f"/spec/profileSpec/{places[i]}/requested", "value": n} for i, n in wanted.items()]
    rows.append({"op": "add", "path": "/spec/enabled", "value": True})
    return f"kubectl patch migconfiguration {CUT} --type json -p '{json.dumps(rows)}'"


def wait(kind: str, name: str, what: str = "condition=Ready") -> str:
    return f"kubectl wait {kind}/{name} --for {what} --timeout 60s"


def from_a_card_to_a_machine(box: Machines) -> None:
    box.run("kubectl get sriovgpudevices")
    box.run(patch("sriovgpudevice", GPU, enabled=True))
    box.run(wait("sriovgpudevice", GPU))
    box.run("kubectl get vgpudevices")
    for name in (FIRST, SECOND):
        box.run(patch("vgpudevice", name, enabled=True, vGPUTypeName=TYPE))
        box.run(wait("vgpudevice", name))
    box.run(f"kubectl get vgpudevices {FIRST} {SECOND} {THIRD}")
    box.until(lambda: box.offered("node1", RESOURCE) == "2", "kubelet to offer both")
    print("\n# a VM requests the resource, and its launcher gets one")
    box.run(f"kubectl create -f {box.file('desk.yaml', machine('desk', [RESOURCE]))}")
    box.run(wait("vm", "desk", "jsonpath={.status.printableStatus}=Running"))
    pod = box.quiet("kubectl get pods -l vm.kubevirt.io/name=desk -o jsonpath={.items[0].metadata.name}")
    assert "MDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q=" in box.run(f"kubectl exec {pod} -- env")


def what_is_refused(box: Machines) -> None:
    print("\n# refused, each time with the holder and the next command")
    box.until(lambda: "deviceAllocationDetails" in box.quiet("kubectl get vm desk -o yaml"), "what desk has")
    (has,) = [name for name in (FIRST, SECOND) if name in box.quiet("kubectl get vm desk -o yaml")]
    box.refused(patch("vgpudevice", has, enabled=False), f"{has} is in use with VM desk")
    box.refused(patch("sriovgpudevice", GPU, enabled=False), f"cannot disable {GPU} while vGPUs")
    for name in (THIRD, FOURTH):
        box.run(patch("vgpudevice", name, enabled=True, vGPUTypeName=TYPE))
        box.run(wait("vgpudevice", name))
    box.refused(patch("vgpudevice", FIFTH, enabled=True, vGPUTypeName=TYPE), f"on {FIRST}")
    two = [{"name": f"gpu{n}", "deviceName": RESOURCE, **RAMFB} for n in range(2)]
    box.refused(f"kubectl create -f {box.file('two-ramfb.yaml', machine('screens', two))}", "2 devices have ramFB")


def how_many_are_left(box: Machines) -> None:
    box.until(lambda: box.offered("node1", RESOURCE) == "4", "kubelet to offer four")
    box.run("aliquot capacity")
    box.refused(f"aliquot capacity --request {RESOURCE}:2 --machines 2", "3 can still be allocated")
    box.refused(f"kubectl create -f {box.file('four-vgpus.yaml', machine('farm', [RESOURCE] * 4))}", "are requested")


def a_layout_and_drift(box: Machines) -> None:
    print("\n# another node, with a GPU that can be partitioned")
    box.run(patch("sriovgpudevice", CUT, enabled=True))
    box.run(wait("sriovgpudevice", CUT))
    rows = json.loads(box.quiet(f"kubectl get migconfiguration {CUT} -o json"))["spec"]["profileSpec"]
    places = {row["id"]: number for number, row in enumerate(rows)}
    box.refused(layout(places, {19: 17}), "at most 7 fit")
    box.run(layout(places, {19: 2, 9: 1}))
    box.run(wait("migconfiguration", CUT, "jsonpath={.status.status}=synced"))
    print("\n# a change by hand, in the driver's pod: the agent does not touch it, and reports it")
    inside = "kubectl -n harvester-system exec nvidia-driver-node2 -- nvidia-smi mig"
    box.run(f"{inside} -lgi")
    box.run(f"{inside} -dci -gi 7")
    box.run(f"{inside} -dgi -gi 7")
    box.run(wait("migconfiguration", CUT, "jsonpath={.status.status}=out-of-sync"))
    box.run("kubectl get migconfigurations")
    print("\n# it is rebuilt when it is disabled and enabled")
    box.run(patch("migconfiguration", CUT, enabled=False))
    box.run(wait("migconfiguration", CUT, "jsonpath={.status.status}=disabled"))
    box.run(patch("migconfiguration", CUT, enabled=True))
    box.run(wait("migconfiguration", CUT, "jsonpath={.status.status}=synced"))
    box.run(f"{inside} -lgi")


def and_back(box: Machines) -> None:
    print("\n# and back")
    box.run("kubectl delete vm desk")
    box.run(patch("migconfiguration", CUT, enabled=False))
    for name in (FIRST, SECOND, THIRD, FOURTH):
        box.run(patch("vgpudevice", name, enabled=False))
    for name in (GPU, CUT):
        box.run(patch("sriovgpudevice", name, enabled=False))
        box.run(wait("sriovgpudevice", name))
    assert "No resources found" in box.run("kubectl get vgpudevices,migconfigurations")
    box.run("kubectl get sriovgpudevices")
