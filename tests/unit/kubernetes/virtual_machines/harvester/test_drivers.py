"""Selection of the pod with a node's driver, and reasons why a driver cannot be used."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.pods import Pod
from aliquot.kubernetes.virtual_machines.harvester.driver_pods import DriverPod, choose_pod
from support.driverpods import driver_pod


def pods(*bodies: dict[str, Any]) -> list[Pod]:
    return [msgspec.convert(body, Pod) for body in bodies]


def changed(body: dict[str, Any], **meta: Any) -> dict[str, Any]:
    return {**body, "metadata": {**body["metadata"], **meta}}


def restarted(body: dict[str, Any], times: int) -> dict[str, Any]:
    body["status"]["containerStatuses"][0]["restartCount"] = times
    return body


def test_the_driver_s_container_else_the_first() -> None:
    body = driver_pod("n1")
    body["spec"]["containers"].insert(0, {"name": "sidecar"})
    found = choose_pod(pods(body), "n1")
    assert found.pod == DriverPod(
        "harvester-system", "nvidia-driver-n1", "nvidia-driver-ctr", "", "containerd://nvidia-driver-n1-0"
    )
    body["spec"]["containers"] = [{"name": "vgpu-manager"}, {"name": "other"}]
    body["status"]["containerStatuses"][0]["name"] = "vgpu-manager"
    found = choose_pod(pods(body), "n1")
    assert found.pod is not None
    assert found.pod.container == "vgpu-manager"


def test_another_node_s_pod_is_none() -> None:
    found = choose_pod(pods(driver_pod("n2")), "n1")
    assert (found.pod, found.reason) == (None, "NoDriverPod")
    assert found.message == "node n1 has no driver pod (app=nvidia-driver-daemonset in namespace harvester-system)"
    assert found.next_step == "kubectl -n harvester-system get pods -l app=nvidia-driver-daemonset -o wide"


def test_a_pod_that_is_being_deleted_is_not_used() -> None:
    # The original continues to use it until it observes the deletion, regardless of the phase.
    leaving = changed(driver_pod("n1"), deletionTimestamp="2026-01-01T00:00:00Z")
    assert choose_pod(pods(leaving), "n1").reason == "DriverPodLeaving"
    found = choose_pod(pods(leaving, driver_pod("n1", name="new")), "n1")
    assert found.pod is not None
    assert found.pod.name == "new"


def test_of_two_the_newest_that_runs_wins() -> None:
    old = changed(driver_pod("n1", name="old"), creationTimestamp="2026-01-01T00:00:00Z")
    new = changed(driver_pod("n1", name="new"), creationTimestamp="2026-01-02T00:00:00Z")
    starting = changed(driver_pod("n1", name="a", ready=False), creationTimestamp="2026-01-03T00:00:00Z")
    found = choose_pod(pods(old, starting, new), "n1")
    assert found.pod is not None
    assert found.pod.name == "new"


def test_a_pod_that_starts_is_not_used() -> None:
    found = choose_pod(pods(driver_pod("n1", ready=False)), "n1")
    assert found.reason == "DriverPodNotReady"
    assert found.message == "pod harvester-system/nvidia-driver-n1 is not ready (Pending)"
    assert found.next_step == "kubectl -n harvester-system describe pod nvidia-driver-n1"


def test_a_pod_that_runs_but_whose_container_is_not_ready_is_not_used() -> None:
    body = driver_pod("n1")
    body["status"]["containerStatuses"][0]["ready"] = False
    found = choose_pod(pods(body), "n1")
    assert (found.pod, found.reason) == (None, "DriverPodNotReady")


@pytest.mark.parametrize("url", ["HTTPENDPOINT/NVIDIA-Linux-x86_64-vgpu-kvm.run", "", "  "])
def test_cannot_enable_because_the_driver_s_url_is_the_placeholder(url: str) -> None:
    # harvester/harvester#5112: the pod crash-loops with "Could not resolve host: HTTPENDPOINT". The user interface only
    # shows that SR-IOV could not be enabled.
    found = choose_pod(pods(restarted(driver_pod("n1", ready=False, url=url), 7)), "n1")
    assert found.reason == "DriverLocationMissing"
    assert "has no address for the driver: its DRIVER_LOCATION is" in found.message
    assert "driverToolkit.location" in found.next_step


def test_a_pod_that_fails_again_and_again_leads_to_its_log() -> None:
    found = choose_pod(pods(restarted(driver_pod("n1", ready=False), 4)), "n1")
    assert found.reason == "DriverPodFailing"
    assert found.message == "pod harvester-system/nvidia-driver-n1 has restarted 4 times and is not ready: see its log"
    assert found.next_step == "kubectl -n harvester-system logs nvidia-driver-n1 -c nvidia-driver-ctr --previous"


def test_a_url_from_a_secret_is_not_missing() -> None:
    body = driver_pod("n1", ready=False)
    body["spec"]["containers"][0]["env"] = [
        {"name": "DRIVER_LOCATION", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    ]
    assert choose_pod(pods(body), "n1").reason == "DriverPodNotReady"


def test_a_container_that_restarted_is_another() -> None:
    # The agent therefore checks again whether its driver is ready.
    body = driver_pod("n1")
    before = choose_pod(pods(body), "n1").pod
    body["status"]["containerStatuses"][0]["containerID"] = "containerd://again"
    assert choose_pod(pods(body), "n1").pod != before
