"""The claim agent as a process: an API server with claims, a kubelet that calls it, and a simulated node."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.dra.plugin.claim_service import ClaimReference
from support.agents import Agent, MakeAgent
from support.deployed import CLAIMS, Deployed
from support.drakubelet import DraKubelet
from system.kubelet.kubeletdouble import Container, Kubelet, Pod

DRIVER = "gpu.nvidia.com"
API = "/apis/resource.k8s.io/v1"
THREE_G = "nvidia.com/mig-3g.20gb"
HALF = "gpu-0-mig-3g20gb-9-4"


class Played:
    """A node with the claim agent, its kubelet, and the scheduler played by hand."""

    def __init__(self, agent: Agent, folder: Path) -> None:
        self.agent = agent
        self.kubelet = DraKubelet(folder / "kubelet")
        self.cdi = folder / "cdi"
        (folder / "kubelet/plugins_registry").mkdir(parents=True)
        agent.environment = {"DRA_DRIVER": DRIVER, "DRA_MODE_CHANGES": "any"}
        agent.arguments = ["--kubelet-dir", str(folder / "kubelet"), "--cdi-dir", str(self.cdi)]

    def move(self) -> None:
        """Replace the label agent by the claim agent, as the node's label ``aliquot.dev/allocation`` does."""
        assert self.agent.stop() == 0
        self.agent.deployed = Deployed(CLAIMS, self.agent.name, self.agent.folder / "claims.pod")
        self.agent.deployed.install(self.agent.cluster)
        self.agent.config = None

    def start(self) -> None:
        self.agent.start()
        self.agent.until(lambda: self.published(), "the ResourceSlices")
        self.agent.until(lambda: list((self.kubelet.directory / "plugins_registry").glob("*.sock")), "the socket")

    def slices(self) -> list[Any]:
        found: list[Any] = self.agent.call("GET", f"{API}/resourceslices")["items"]
        return found

    def published(self) -> dict[str, Any]:
        return {d["name"]: d for each in self.slices() for d in each["spec"].get("devices") or ()}

    def allocate(self, name: str, device: str) -> ClaimReference:
        """Create a claim, and give it a device as the scheduler does."""
        path = f"{API}/namespaces/default/resourceclaims"
        request = {"name": "gpu", "exactly": {"deviceClassName": "mig.nvidia.com"}}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        made = self.agent.call(
            "POST", path, {**head, "metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        )
        pool = f"{self.agent.name}-aliquot"
        result = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": device}
        field = {"key": "metadata.name", "operator": "In", "values": [self.agent.name]}
        selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        status = {"status": {"allocation": {"devices": {"results": [result]}, "nodeSelector": selector}}}
        self.agent.call("PATCH", f"{path}/{name}/status", status, "application/merge-patch+json")
        return ClaimReference(made["metadata"]["uid"], "default", name)

    def shown(self, name: str) -> list[tuple[str, str, str]]:
        """Return what a claim shows of its devices: the device, whether it is ready, and why."""
        claim = self.agent.call("GET", f"{API}/namespaces/default/resourceclaims/{name}")
        devices = claim["status"].get("devices") or ()
        return [(d["device"], c["status"], c["reason"]) for d in devices for c in d["conditions"]]

    def prepare(self, claim: ClaimReference) -> Any:
        async def call() -> Any:
            await self.kubelet.look()
            return (await self.kubelet.prepare(DRIVER, [claim]))[claim.uid]

        return asyncio.run(call())

    def unprepare(self, claim: ClaimReference) -> str:
        async def call() -> Any:
            await self.kubelet.look()
            return (await self.kubelet.unprepare(DRIVER, [claim]))[claim.uid]

        return str(asyncio.run(call()).error)


@pytest.fixture
def played(make_agent: MakeAgent) -> Iterator[Played]:
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        made = Played(make_agent("a100-sxm4-40gb", manifest=CLAIMS), Path(folder))
        pods = Kubelet(Path(folder) / "kubelet")
        pods.start()
        yield made
        pods.stop()


def test_a_claim_gets_its_placement_and_the_next_one_keeps_off(played: Played) -> None:
    played.start()
    assert "gpu-0-mig-7g40gb-0-0" in played.published()
    claim = played.allocate("train", HALF)
    answer = played.prepare(claim)
    assert (answer.error, [d.device_name for d in answer.devices]) == ("", [HALF])
    assert played.agent.geometry() == [["3g.20gb@4"]]
    (document,) = played.cdi.glob("*.json")
    named = [
        f"{json.loads(document.read_text())['kind']}={d['name']}" for d in json.loads(document.read_text())["devices"]
    ]
    assert list(answer.devices[0].cdi_device_ids) == named
    played.agent.until(lambda: "gpu-0-mig-7g40gb-0-0" not in played.published(), "the blocked placement")
    assert HALF in played.published()
    played.agent.until(lambda: played.shown("train") == [(HALF, "True", "Prepared")], "the device in the claim")
    second = played.prepare(played.allocate("wrong", "gpu-0-mig-7g40gb-0-0"))
    assert "claim default/train" in second.error
    assert played.agent.geometry() == [["3g.20gb@4"]]
    assert played.unprepare(claim) == ""
    assert not list(played.cdi.glob("*.json"))
    assert played.agent.geometry() == [["3g.20gb@4"]]  # warm
    played.agent.until(lambda: played.shown("train") == [], "nothing in the claim")


def test_a_killed_agent_gives_the_same_answer_and_publishes_again(played: Played) -> None:
    played.start()
    claim = played.allocate("train", HALF)
    first = played.prepare(claim)
    played.agent.kill()
    for each in played.slices():  # kubelet deletes the slices of a driver whose socket is gone
        played.agent.call("DELETE", f"{API}/resourceslices/{each['metadata']['name']}")
    writes = len(played.agent.writes())
    played.start()
    assert played.prepare(claim) == first
    assert HALF in played.published()
    assert len(played.agent.writes()) == writes


def test_a_claim_says_that_its_gpu_fell_off_the_bus(played: Played) -> None:
    played.start()
    claim = played.allocate("train", HALF)
    played.prepare(claim)
    played.agent.sim.inject_fault("lost", gpu=0)
    played.agent.until(lambda: played.shown("train") == [(HALF, "False", "DeviceMissing")], "the reason", 45)
    assert "fell off the bus" in played.prepare(claim).error
    assert played.unprepare(claim) == ""
    played.agent.until(lambda: played.shown("train") == [], "the release")


def test_an_idle_agent_writes_nothing(played: Played) -> None:
    played.start()
    versions = [each["metadata"]["resourceVersion"] for each in played.slices()]
    played.prepare(played.allocate("train", HALF))
    played.agent.until(lambda: "gpu-0-mig-7g40gb-0-0" not in played.published(), "the blocked placement")
    after = [each["metadata"]["resourceVersion"] for each in played.slices()]
    assert sum(a != b for a, b in zip(versions, after, strict=True)) == 1
    played.agent.stop()
    assert played.slices()


def test_a_node_moves_from_the_label_to_claims_beside_a_running_pod(only_standin: MakeAgent) -> None:
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        agent = only_standin("a100-sxm4-40gb")
        played = Played(agent, Path(folder))
        agent.environment |= {"MIG_STRATEGY": "mixed"}
        kubelet = Kubelet(Path(folder) / "kubelet")
        kubelet.start()
        try:
            agent.start()
            agent.request("all-3g.20gb")
            agent.until(lambda: kubelet.allocatable.get(THREE_G) == 2, "the device plugin's resource")
            kubelet.admit(Pod("train", (Container("main", {THREE_G: 1}),)))
            played.move()
            played.start()
            halves = ("gpu-0-mig-3g20gb-9-0", HALF)
            answers = [played.prepare(played.allocate(f"claim-{n}", name)) for n, name in enumerate(halves)]
            assert sorted(bool(each.error) for each in answers) == [False, True]
            assert "pod default/train" in "".join(each.error for each in answers)
            assert agent.geometry() == [["3g.20gb@0", "3g.20gb@4"]]
            agent.until(lambda: len(kubelet.allocatable) and not any(kubelet.allocatable.values()), "no plugin")
        finally:
            kubelet.stop()


def test_a_node_that_moves_back_spares_a_claim_that_is_still_in_use(only_standin: MakeAgent) -> None:
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        agent = only_standin("a100-sxm4-40gb")
        played, before = Played(agent, Path(folder)), agent.deployed
        agent.settings("holders: {policy: refuse}")
        kubelet = Kubelet(Path(folder) / "kubelet")
        kubelet.start()
        try:
            agent.start()
            agent.until(lambda: "nvidia.com/mig.capable" in agent.labels(), "the labels")
            played.move()
            played.start()
            assert played.prepare(played.allocate("train", HALF)).error == ""
            assert agent.stop() == 0
            agent.deployed, agent.config = before, None
            agent.start()
            refused = agent.request("all-7g.40gb", "failed", "Held")
            assert "claim default/train" in json.dumps(refused)
            assert agent.geometry() == [["3g.20gb@4"]]
        finally:
            kubelet.stop()


def test_a_vm_gets_a_vgpu_and_another_the_whole_gpu(only_standin: MakeAgent) -> None:
    with tempfile.TemporaryDirectory(prefix="dra-") as folder:
        played = Played(only_standin("l40s:vfio", manifest=CLAIMS), Path(folder))
        played.agent.environment |= {"DRA_VM": "all=L40S-24Q"}
        pods = Kubelet(Path(folder) / "kubelet")
        pods.start()
        try:
            played.start()
            gpu = played.published()["vm-0000-01-00-0-vfio"]["attributes"]
            assert {d["attributes"]["type"]["string"] for d in played.published().values()} == {"vfio", "vgpu"}
            vgpu = "vm-0000-01-00-0-l40s-24q-1"
            claim = played.allocate("desktop", vgpu)
            assert played.prepare(claim).error == ""
            (entry,) = json.loads(next(played.cdi.glob("*.json")).read_text())["devices"]
            opened = [each["path"] for each in entry["containerEdits"]["deviceNodes"]]
            assert opened[0] == "/dev/vfio/vfio"
            assert len(opened) >= 2
            (attached,) = _metadata(entry)["requests"][0]["devices"]
            function = attached["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
            assert function == "0000:01:00.4"
            assert "mdevUUID" not in attached["attributes"]
            assert gpu["resource.kubernetes.io/pciBusID"]["string"] == "0000:01:00.0"
            played.agent.until(lambda: "vm-0000-01-00-0-vfio" not in played.published(), "the blocked GPU")
            assert "claim default/desktop" in played.prepare(played.allocate("early", "vm-0000-01-00-0-vfio")).error
            assert played.unprepare(claim) == ""
            whole = played.allocate("whole", "vm-0000-01-00-0-vfio")
            assert played.prepare(whole).error == ""
            (entry,) = json.loads(next(played.cdi.glob("*.json")).read_text())["devices"]
            (attached,) = _metadata(entry)["requests"][0]["devices"]
            assert attached["attributes"]["resource.kubernetes.io/pciBusID"]["string"] == "0000:01:00.0"
        finally:
            pods.stop()


def _metadata(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what KubeVirt reads of a device."""
    (mount,) = entry["containerEdits"]["mounts"]
    found: dict[str, Any] = json.loads(Path(mount["hostPath"]).read_text())
    return found
