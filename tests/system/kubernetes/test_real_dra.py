"""The claim agent beside a real kube-scheduler, kubelet and container runtime, which are not our doubles.

The GPU is simulated with measured latencies. Its device files exist only as entries in the containers' folders.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.dra.model.naming import NVIDIA_DRIVER, DriverNaming
from support.agents import NAMESPACE, Agent
from support.cluster import RealCluster
from support.drafleet import FleetNode, classes
from support.factory import inventory
from system.kubernetes.realnode import RealNode, why_not

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
RESOURCES = "/apis/resource.k8s.io/v1"
SCRIPT = "busybox ls -R /dev > /out/{name}.new; busybox mv /out/{name}.new /out/{name}.dev; exec busybox sleep 3600"


class Site:
    """A cluster of one real node, whose claim agent serves a simulated GPU."""

    def __init__(self, cluster: RealCluster, folder: Path, agent: Agent) -> None:
        self.cluster, self.agent = cluster, agent
        naming = DriverNaming(NVIDIA_DRIVER)
        fleet = FleetNode(agent.name, inventory("a100-sxm4-40gb", enabled=True), naming)
        for one in classes([fleet]).values():
            cluster.must("POST", f"{RESOURCES}/deviceclasses", one)
        request = {"name": "gpu", "exactly": {"deviceClassName": "mig-1g.5gb.nvidia.com"}}
        template = {"metadata": {"name": "small"}, "spec": {"spec": {"devices": {"requests": [request]}}}}
        cluster.must("POST", f"{RESOURCES}/namespaces/default/resourceclaimtemplates", template)
        self.node = RealNode(cluster.server, folder, agent.name)
        agent.config = cluster.kubeconfig()
        words = ["--claims", "--dra-driver", NVIDIA_DRIVER, "--dra-mode-changes", "any"]
        agent.arguments = [*words, "--kubelet-dir", str(folder / "kubelet"), "--cdi-dir", str(self.node.cdi)]

    def start(self) -> None:
        self.agent.start()
        self.until(lambda: self.published, "the ResourceSlices")

    def until(self, true: Any, what: str) -> None:
        self.agent.until(true, f"{what}\n{self.node.log()}")

    @property
    def published(self) -> set[str]:
        found = self.cluster.get(f"{RESOURCES}/resourceslices")["items"]
        return {device["name"] for each in found for device in each["spec"].get("devices") or ()}

    def claims(self) -> dict[str, list[str]]:
        """Return the devices of the claims, by the pod that owns each."""
        return {
            each["metadata"]["ownerReferences"][0]["name"]: [
                row["device"] for row in each["status"]["allocation"]["devices"]["results"]
            ]
            for each in self.cluster.get(f"{RESOURCES}/resourceclaims")["items"]
            if each.get("status", {}).get("allocation")
        }

    def create(self, name: str, limits: dict[str, int] | None = None, template: str = "") -> None:
        self.node.create(name, limits or {}, SCRIPT.format(name=name), bound=False, template=template)

    def run(self, name: str, limits: dict[str, int] | None = None, template: str = "") -> float:
        """Run a pod, and return the seconds from its creation until its container had started its program."""
        began = time.monotonic()
        self.create(name, limits, template)
        self.until((self.node.out / f"{name}.dev").exists, f"pod {name} to run")
        took = time.monotonic() - began
        self.until(lambda: self.phase(name) == "Running", f"pod {name} to be seen running")
        return took

    def caps(self, name: str) -> set[str]:
        """Return the capability files that the container of a pod saw."""
        return {word for word in (self.node.out / f"{name}.dev").read_text().split() if word.startswith("nvidia-cap")}

    def container(self, name: str) -> tuple[str, int]:
        """Return the id of a pod's container, and how often it was started again."""
        (found,) = self.node.pod(name)["status"]["containerStatuses"]  # type: ignore[index]
        return found["containerID"], found["restartCount"]

    def refusal(self, name: str) -> str:
        """Return why the scheduler does not place a pod; empty if it has not said so."""
        conditions = (self.node.pod(name) or {}).get("status", {}).get("conditions") or ()
        return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")

    def events(self, name: str) -> list[str]:
        """Return the texts of the events of a pod."""
        found = self.cluster.get("/api/v1/namespaces/default/events")["items"]
        return [each["message"] for each in found if each["involvedObject"]["name"] == name]

    def phase(self, name: str) -> str:
        return str((self.node.pod(name) or {}).get("status", {}).get("phase"))

    def delete(self, name: str) -> None:
        self.cluster.must("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1")
        self.gone(name)

    def gone(self, name: str) -> None:
        self.until(lambda: self.node.pod(name) is None, f"the end of pod {name}")
        self.until(lambda: name not in self.claims(), f"the end of the claim of {name}")

    def documents(self) -> list[Path]:
        """Return the CDI documents of the prepared claims."""
        return list(self.node.cdi.glob("*.json"))

    def close(self) -> None:
        for pod in self.cluster.get(PODS)["items"]:
            self.cluster.must("DELETE", f"{PODS}/{pod['metadata']['name']}?gracePeriodSeconds=0")
        self.node.close()


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if reason := why_not():
        pytest.skip(reason)
    cluster: RealCluster = request.getfixturevalue("scheduled_cluster")
    cluster.namespace(NAMESPACE)
    folder = Path(tempfile.mkdtemp(prefix="dra-"))
    agent = Agent(cluster, tmp_path, "node-0", "a100-sxm4-40gb", latency="measured")
    made = Site(cluster, folder, agent)
    try:
        yield made
    finally:
        agent.close()
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def test_pods_come_and_go_and_an_instance_stays_warm(site: Site) -> None:
    site.start()
    site.run("first", template="small")
    site.run("half", {"nvidia.com/mig-3g.20gb": 1})
    small = site.claims()["first"]
    assert site.agent.geometry() == [["1g.5gb@6", "3g.20gb@0"]]
    # Each container has the folder of capabilities, and the two files of its own instance.
    assert len(site.caps("first")) == len(site.caps("half")) == 3
    assert site.caps("first") & site.caps("half") == {"nvidia-caps"}
    site.create("large", {"nvidia.com/mig-4g.20gb": 1})
    site.until(lambda: "cannot allocate all claims" in site.refusal("large"), "the refusal")
    assert site.phase("large") == "Pending"
    site.delete("first")
    assert len(site.documents()) == 1
    writes = site.agent.writes()
    assert [call for call in writes if "Destroy" in call] == []
    site.run("second", template="small")
    assert (site.claims()["second"], site.agent.writes()) == (small, writes)  # warm
    site.delete("half")
    site.until((site.node.out / "large.dev").exists, "the pod that waited")
    assert site.agent.geometry() == [["1g.5gb@6", "4g.20gb@0"]]


def test_a_running_claim_survives_kubelet_and_agent(site: Site) -> None:
    site.start()
    site.run("first", template="small")
    container = site.container("first")
    site.node.restart()  # it deletes the slices of all drivers
    site.run("second", template="small")
    assert site.container("first") == container
    writes = site.agent.writes()
    site.agent.kill()
    site.cluster.must("DELETE", f"{PODS}/second?gracePeriodSeconds=1")
    kubelet = site.node.folder / "kubelet.log"
    site.cluster.wait(lambda: "unprepare dynamic resources" in kubelet.read_text(), "kubelet's vain call", 30)
    assert (len(site.documents()), len(site.claims())) == (2, 2)
    site.agent.start()
    site.gone("second")
    assert len(site.documents()) == 1
    site.run("third", template="small")
    assert (site.container("first"), site.agent.writes()) == (container, writes)
    site.delete("third")
    site.delete("first")
    assert site.documents() == []


@pytest.mark.long(about=["src/aliquot/kubernetes/dra/agent"])
def test_a_claim_that_kubelet_has_not_released_keeps_its_device(site: Site) -> None:
    """Kubelet looks once a minute for claims of pods that it never saw end."""
    site.start()
    site.run("old", {"nvidia.com/mig-7g.40gb": 1})
    (claim,) = site.cluster.get(f"{RESOURCES}/resourceclaims")["items"]
    device = site.claims()["old"]
    site.node.stop()
    site.cluster.must("DELETE", f"{PODS}/old?gracePeriodSeconds=0")
    site.until(lambda: not site.claims(), "the end of the claim")
    site.node.start()
    site.create("new", {"nvidia.com/mig-7g.40gb": 1})
    holder = f"held by claim default/{claim['metadata']['name']}"
    site.until(lambda: holder in " ".join(site.events("new")), "the refusal")
    assert site.claims() == {"new": device}
    site.cluster.wait((site.node.out / "new.dev").exists, "the release", 120)
    assert site.agent.geometry() == [["7g.40gb@0"]]
