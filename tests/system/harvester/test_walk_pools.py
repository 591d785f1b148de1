"""Pools of vGPUs, by kubectl: on a card, a node and the cluster, beside vGPUs that were enabled one by one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from system.harvester.conftest import MakeSite
from system.harvester.site import Site

FOUR_Q, EIGHT_Q = "NVIDIA A2-4Q", "NVIDIA A2-8Q"
RESOURCE = "nvidia.com/NVIDIA_A2-4Q"


@pytest.mark.slow
def test_pools(make_site: MakeSite) -> None:
    site = make_site({"one": "a2:mdev:bus08", "two": "a2:vfio:bus08"})
    site.until(lambda: site.count("sriovgpudevices") == 2, "both GPUs")
    what_the_server_refuses(site)
    a_pool_of_the_cluster(site)
    a_device_that_is_disabled_comes_back(site)
    a_pool_that_shrinks_waits_for_its_vm(site)
    a_pool_that_is_deleted(site)


def pool(site: Site, name: str, type_name: str, count: int, **place: Any) -> None:
    text = {
        "apiVersion": "aliquot.dev/v1alpha1",
        "kind": "VGPUPool",
        "metadata": {"name": name},
        "spec": {"vGPUTypeName": type_name, "count": count, **place},
    }
    site.kubectl("apply", "-f", "-", stdin=json.dumps(text))


def ready(site: Site, name: str) -> None:
    site.kubectl("wait", f"vgpupool/{name}", "--for=condition=Ready", "--timeout=55s")


def what_the_server_refuses(site: Site) -> None:
    with pytest.raises(AssertionError, match="at most one of"):
        pool(site, "desk", FOUR_Q, 1, nodeName="one", sriovGPUDevice="one-000008000")
    with pytest.raises(AssertionError, match="count"):
        pool(site, "desk", FOUR_Q, -1)
    with pytest.raises(AssertionError, match="near it are NVIDIA A2-4Q"):
        pool(site, "desk", "NVIDIA A2-4QQ", 1)


def a_pool_of_the_cluster(site: Site) -> None:
    pool(site, "desk", FOUR_Q, 5)
    ready(site, "desk")
    site.until(
        lambda: sum(int(site.offered(node, RESOURCE) or 0) for node in ("one", "two")) == 5, "five to be offered"
    )
    rows = site.kubectl("get", "vgpupools").splitlines()
    assert rows[0].split()[:5] == ["NAME", "TYPE", "COUNT", "READY", "IN"]
    assert "desk" in rows[1]
    assert "Configured" in rows[1]
    labelled = site.all("vgpudevices", "-l", "aliquot.dev/pool=desk")
    assert [each["spec"]["enabled"] for each in labelled] == [True] * 5


def a_device_that_is_disabled_comes_back(site: Site) -> None:
    name = site.all("vgpudevices", "-l", "aliquot.dev/pool=desk")[0]["metadata"]["name"]
    site.patch("vgpudevice", name, enabled=False)
    site.wait("vgpudevice", name, "{.spec.enabled}=true")
    ready(site, "desk")


def a_pool_that_shrinks_waits_for_its_vm(site: Site) -> None:
    site.create("vm", [RESOURCE])
    site.runs("vm")
    site.until(lambda: site.has("vm"), "the name of its device")
    pool(site, "desk", FOUR_Q, 0)
    site.kubectl("wait", "vgpupool/desk", "--for=jsonpath={.status.ready}=1", "--timeout=55s")
    found = json.loads(site.kubectl("get", "vgpupool", "desk", "-o", "json"))["status"]
    assert found["inUse"] == 1
    assert "VM vm in namespace default" in found["conditions"][0]["message"]
    assert site.environment.phase("vm") == "Running"


def a_pool_that_is_deleted(site: Site) -> None:
    site.kubectl("delete", "vgpupool", "desk", "--timeout=30s")
    assert site.environment.phase("vm") == "Running"
    assert len([each for each in site.all("vgpudevices") if each["spec"]["enabled"]]) == 1
