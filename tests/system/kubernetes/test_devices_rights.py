"""The real devices agent with the rights of its manifests and a token as the kubelet mounts it: enough for every
action.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.kinds.harvester_names import DRIVER_NEEDED_LABEL, object_name
from support.cluster import Cluster
from support.devicesagent import API, DevicesAgent, MakeDevices
from support.standin.kubeconfig import kubeconfig
from system.kubernetes.agent_rights import NS, OTHER_NODE, OWN_NODE
from system.kubernetes.vm_rights import DEVICES, VmEnvironment, item, path

A2, ONE = "0000:01:00.0", "0000:01:00.4"


@pytest.fixture
def environment(cluster: Cluster) -> VmEnvironment:
    return VmEnvironment(cluster)


def bound(
    cluster_environment: VmEnvironment, agent: DevicesAgent, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give the agent what its pod on its node would have."""
    cluster = cluster_environment.cluster
    cluster_environment.pod("devices-pod", agent.name, NS, DEVICES)
    token = cluster_environment.token(DEVICES, "devices-pod")
    file = folder / "bound-kubeconfig"
    file.write_text(kubeconfig(cluster.url, token, ca=str(cluster.ca), namespace=NS, user=DEVICES))
    monkeypatch.setattr(cluster, "kubeconfig", lambda *_, **__: file)
    refused = [path(plural, OTHER_NODE) for plural in ("sriovgpudevices", "pcidevices")]
    note = {"metadata": {"annotations": {"a": "b"}}}
    cluster.wait(
        lambda: all(cluster_environment.devices.ask("PATCH", each, note).status == 403 for each in refused),
        "the policies",
    )


def clean(agent: DevicesAgent) -> None:
    for refusal in ("forbidden", "lacks permission", "denied request"):
        assert refusal not in agent.log()


@pytest.mark.parametrize("kind", ["mdev", "vfio"])
def test_from_enable_to_a_vgpu_and_back_needs_no_right_that_is_not_in_the_table(
    environment: VmEnvironment, make_devices: MakeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    agent = make_devices(f"a2:{kind}")
    bound(environment, agent, tmp_path, monkeypatch)
    agent.start()
    agent.enabled(A2)
    agent.carrying(ONE)
    agent.until(lambda: agent.labels().get(DRIVER_NEEDED_LABEL) == "true", "the driver's label")
    agent.until(lambda: agent.standing().get("state") == "working", "the node's annotation")
    claims = set(agent.all("pcideviceclaims"))
    assert claims == ({object_name(agent.name, ONE)} if kind == "vfio" else set())
    agent.set("vgpudevices", ONE, {"enabled": False})
    agent.until(lambda: agent.vgpus() == {} and not agent.all("pcideviceclaims"), "the vGPU to go")
    agent.set("sriovgpudevices", A2, {"enabled": False})
    agent.until(lambda: agent.all("vgpudevices") == {}, "the functions' objects to go")
    assert {row["reason"] for row in agent.reported(A2)}
    clean(agent)
    environment.close()


def test_a_claim_comes_and_goes(
    environment: VmEnvironment, make_devices: MakeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_devices("a2:vfio")
    bound(environment, agent, tmp_path, monkeypatch)
    agent.start()
    agent.until(lambda: agent.ready("sriovgpudevices", A2), "the GPU's object")
    environment.admin.must("POST", f"{API}/pcideviceclaims", item("pcideviceclaims", agent.name, A2))
    enabled = "passthroughEnabled"
    agent.until(lambda: agent.one("pcideviceclaims", A2).get("status", {}).get(enabled), "the passthrough of the GPU")
    environment.admin.must("DELETE", path("pcideviceclaims", agent.name, A2))
    agent.until(lambda: not agent.one("pcideviceclaims", A2), "the claim to be let go")
    assert agent.name not in (OWN_NODE, OTHER_NODE)
    clean(agent)
    environment.close()


def test_a_layout_is_cut(
    environment: VmEnvironment, make_devices: MakeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_devices("a100-sxm4-40gb:mdev")
    bound(environment, agent, tmp_path, monkeypatch)
    agent.start()
    agent.until(lambda: agent.one("sriovgpudevices", A2), "the GPU's object")
    agent.set("sriovgpudevices", A2, {"enabled": True})
    agent.until(lambda: agent.one("migconfigurations", A2), "its layout's object")
    rows = agent.one("migconfigurations", A2)["spec"]["profileSpec"]
    requested = [row | {"requested": 2 if row["name"] == "MIG 1g.5gb" else 0} for row in rows]
    agent.set("migconfigurations", A2, {"enabled": True, "profileSpec": requested})
    agent.until(lambda: agent.status_of("migconfigurations", A2).get("status") == "synced", "the layout")
    clean(agent)
    environment.close()


def test_a_usb_device_is_claimed_unplugged_and_taken_back(
    environment: VmEnvironment, make_devices: MakeDevices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_devices("a2:vfio")
    bound(environment, agent, tmp_path, monkeypatch)
    agent.start("--all-devices")
    agent.until(lambda: agent.ready("sriovgpudevices", A2), "the GPU's object")
    agent.aliquot("sim", "usb", "plug", "0951:1666")
    name = f"{agent.name}-0951-1666-001002"

    def status(plural: str) -> dict[str, Any]:
        return dict(agent.all(plural).get(name, {}).get("status", {}))

    agent.until(lambda: status("usbdevices"), "the device's object")
    claim = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "USBDeviceClaim", "metadata": {"name": name}}
    environment.admin.must("POST", f"{API}/usbdeviceclaims", claim | {"spec": {"userName": "admin"}})
    agent.until(lambda: status("usbdevices").get("enabled") is True, "the device to be passed through")
    agent.until(lambda: status("usbdeviceclaims").get("nodeName") == agent.name, "the claim's status")
    agent.aliquot("sim", "usb", "unplug", "/dev/bus/usb/001/002")
    agent.until(lambda: status("usbdevices").get("status") == "orphaned", "the device to be orphaned")
    environment.admin.must("DELETE", f"{API}/usbdeviceclaims/{name}")
    agent.until(lambda: not agent.all("usbdevices") and not agent.all("usbdeviceclaims"), "both to go")
    clean(agent)
    environment.close()
