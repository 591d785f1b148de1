"""A complete cluster: Harvester's kinds and KubeVirt's, nodes with simulated GPUs, one real devices agent per node and
the real controller.

Each agent and the controller is a process with the rights of its manifests. Actions of people are typed as ``kubectl``
commands.

``Site`` starts what a test names, for example::

    site = Site(cluster, tmp_path, dict(one="a2:mdev:bus08", other="a2:vfio"))
    site.patch("sriovgpudevice", "one-000008000", enabled=True)

On the stand-in, the driver is where Harvester has it: in a pod of its own, whose programs are the simulated node's, and
nowhere else. A real API server without a kubelet cannot run anything in pods, so the driver is on the node there.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION
from aliquot.kubernetes.kinds.harvester_peripherals import USB_ENV
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.sim import lifecycle as control
from aliquot.sim.files import SimFiles
from support.cluster import Cluster, StandinCluster
from support.devicesagent import API, PLURALS, DevicesAgent
from support.driverpods import NAMESPACE, below, driver_pod
from support.kubevirt.machines import Launcher
from support.kubevirt.objects import machine
from support.kubevirt.players import VmCluster
from system.harvester.controllerprocess import ControllerProcess
from system.kubernetes.agent_rights import ROOT, manifests

JSON = dict[str, Any]
MACHINES = ROOT / "kubernetes-machines"
ALL_DEVICES = MACHINES / "optional/all-devices.yaml"
PATIENCE_S = 60.0
PODS_CHECK_S = 5
"""Seconds between two observations of a node whose driver is in a pod: each starts programs there."""


class Site:
    """``nodes`` are names and templates, ``agents`` are by node. ``environment`` simulates KubeVirt and kubelets."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        nodes: Mapping[str, str],
        *,
        webhooks: bool = True,
        pods: bool = True,
        all_devices: bool = False,
    ) -> None:
        """Start the site. With ``pods`` False, the driver is on the nodes themselves. With ``all_devices``, the agents
        serve every PCI and USB device.
        """
        self.all_devices = all_devices
        self.cluster, self.folder = cluster, folder
        self.pods = pods and isinstance(cluster, StandinCluster)
        self.environment = VmCluster(cluster)
        self.agents: dict[str, DevicesAgent] = {}
        self.controller = None
        try:
            self._install()
            for name, template in nodes.items():
                self.add(name, template)
            if webhooks:
                self.controller = ControllerProcess(cluster, folder)
                self.controller.start()
        except BaseException:
            self.close()
            raise

    def _install(self) -> None:
        self.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        paths = [f"{API}/{plural}" for plural in PLURALS]
        self.cluster.wait(lambda: all(self.cluster.request("GET", p).status == 200 for p in paths), "the kinds", 30)
        assert len(crds.all_definitions()) == len(PLURALS) + 1
        self.environment.install({})
        hooks = "WebhookConfiguration"  # they are registered with the process that answers them
        self.cluster.apply([each for each in manifests(MACHINES) if not each["kind"].endswith(hooks)])
        if self.all_devices:
            self.cluster.apply(manifests(ALL_DEVICES))

    def add(self, name: str, template: str, *, start: bool = True) -> DevicesAgent:
        """Add a node, its kubelet, its driver's pod and its agent."""
        agent = DevicesAgent(self.cluster, self.folder, name, template, labels={"kubernetes.io/hostname": name})
        self.agents[name] = agent
        node = self.environment.node(name, on_start=partial(_open, agent), on_stop=partial(_close, agent))
        agent.arguments = ["--kubelet-dir", str(node.kubelet.directory.parent)]
        if self.all_devices:
            agent.arguments.append("--all-devices")
        if self.pods:
            agent.check_s = PODS_CHECK_S
        if self.pods:
            self.driver(name)
        if start:
            agent.start()
        return agent

    def close(self) -> None:
        if self.controller is not None:
            self.controller.close()
        for agent in self.agents.values():
            agent.close()
        self.environment.close()

    # -- the driver's pod

    def driver(self, node: str, *, files: tuple[str, ...] = ("/tmp/ready",), name: str = "") -> None:
        """Run the driver's pod on a node, or replace it by another one."""
        assert isinstance(self.cluster, StandinCluster)
        self.cluster.namespace(NAMESPACE)
        self.cluster.apply(driver_pod(node, name=name))
        folder = Path(control.folder(self.agents[node].state, "machine")) / "driver"
        self.cluster.standin.execs.play(name or f"nvidia-driver-{node}", below(folder, files), NAMESPACE)

    def no_driver(self, node: str) -> None:
        """Remove the driver's pod of a node."""
        assert isinstance(self.cluster, StandinCluster)
        self.kubectl("-n", NAMESPACE, "delete", "pod", f"nvidia-driver-{node}", "--force", "--grace-period=0")
        self.cluster.standin.execs.stop(f"nvidia-driver-{node}", NAMESPACE)

    # -- commands of people

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(*words, stdin=stdin)

    def typed(self, line: str) -> str:
        """Run a whole command line of a document, ``kubectl`` included."""
        program, *words = shlex.split(line)
        assert program == "kubectl"
        return self.kubectl(*words)

    def get(self, kind: str, name: str) -> JSON:
        found: JSON = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def all(self, kind: str, *words: str) -> list[JSON]:
        found: list[JSON] = json.loads(self.kubectl("get", kind, "-o", "json", *words))["items"]
        return found

    def seen(self, plural: str, name: str) -> JSON:
        """Read an object without kubectl, for waiting. Return an empty one if none has that name."""
        answer = self.cluster.request("GET", f"{API}/{plural}/{name}")
        return dict(answer.body) if answer.status == 200 else {}

    def count(self, plural: str) -> int:
        return len(self.cluster.get(f"{API}/{plural}")["items"])

    def patch(self, kind: str, name: str, **spec: Any) -> None:
        self.kubectl(*_patch(kind, name, spec))

    def refused(self, kind: str, name: str, **spec: Any) -> str:
        """Return kubectl's message for a refused patch of the spec."""
        return refusal(self.cluster.kubectl_run(*_patch(kind, name, spec)))

    def wait(self, kind: str, name: str, what: str) -> None:
        """Run ``kubectl wait --for``: ``condition=Ready``, ``delete`` or ``{.status.status}=synced``."""
        wanted = f"jsonpath={what}" if what.startswith("{") else what
        done = self.cluster.kubectl_run("wait", f"{kind}/{name}", f"--for={wanted}", "--timeout=55s")
        assert done.returncode == 0, f"{what} of {name}: {done.stderr}\n{self.failure(kind, name)}"

    def failure(self, kind: str, name: str) -> str:
        """Return the object for the message of a wait that failed."""
        found = self.kubectl("get", kind, name, "-o", "yaml")
        return found + "".join(f"\n-- {node}\n{agent.log()[-2000:]}" for node, agent in self.agents.items())

    def until(self, true: Callable[[], object], what: str) -> Any:
        """Run the simulated actors until something holds."""
        try:
            return self.environment.until(true, what, PATIENCE_S)
        except AssertionError as error:
            logs = "".join(f"\n-- {node}\n{agent.log()[-2000:]}" for node, agent in self.agents.items())
            raise AssertionError(f"{error}{logs}") from error

    # -- VMs

    def create(self, name: str, gpus: Iterable[str | JSON] = (), **more: Any) -> None:
        """Create a VM that requests these devices with ``kubectl create -f``."""
        self.kubectl("create", "-f", "-", stdin=yaml.safe_dump(machine(name, list(gpus), **more)))

    def not_created(self, name: str, gpus: Iterable[str | JSON] = (), **more: Any) -> str:
        """Return kubectl's message for a VM that is refused."""
        text = yaml.safe_dump(machine(name, list(gpus), **more))
        return refusal(self.cluster.kubectl_run("create", "-f", "-", stdin=text))

    def runs(self, name: str) -> Launcher:
        """Return the launcher of a VM once it runs."""
        self.until(lambda: self.environment.phase(name) == "Running", f"{name} to run")
        return self.environment.launcher(name)

    def has(self, name: str) -> dict[str, dict[str, list[str]]]:
        """Return the allocation in the VM's annotation."""
        text = self.environment.annotation(name, ALLOCATION_ANNOTATION)
        return dict(json.loads(text)) if text else {}

    def halt(self, name: str) -> None:
        """Stop a VM, and wait until its launcher is gone."""
        self.kubectl(*_patch("virtualmachine", name, {"runStrategy": "Halted"}))
        self.until(lambda: self.environment.instance(name) is None, f"{name} to stop")

    def remove(self, name: str) -> None:
        """Delete a VM, and wait until it is gone."""
        self.kubectl("delete", "virtualmachine", name, "--wait=false")
        path = f"/apis/kubevirt.io/v1/namespaces/default/virtualmachines/{name}"
        self.until(lambda: self.cluster.request("GET", path).status == 404, f"{name} to go")

    def offered(self, node: str, resource: str) -> str | None:
        """Return the node's allocatable count, or None if it has never offered that resource."""
        figures: dict[str, str] = self.agents[node].node()["status"].get("allocatable", {})
        return figures.get(resource)

    # -- the nodes below

    def group(self, node: str, device: str) -> str:
        """Return the IOMMU group of an mdev (by UUID) or a function (by address), from the kernel's own files."""
        bus = "pci" if ":" in device else "mdev"
        return SimFiles(self.agents[node].sim).link(f"/sys/bus/{bus}/devices/{device}/iommu_group").rpartition("/")[2]


def refusal(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0, f"it was let through: {done.stdout}"
    return done.stderr


def _patch(kind: str, name: str, spec: JSON) -> list[str]:
    return ["patch", kind, name, "--type", "merge", "-p", json.dumps({"spec": spec})]


def _open(agent: DevicesAgent, launcher: Launcher) -> None:
    """Open the devices of a launcher, as QEMU does."""
    values = [value for name, value in launcher.environment.items() if not name.startswith(USB_ENV)]
    ids = [each for value in values for each in value.split(",")]
    if ids:
        agent.sim.start_vm(launcher.pod, *ids)


def _close(agent: DevicesAgent, launcher: Launcher) -> None:
    with suppress(StopIteration):  # a reboot has ended it already
        found = next(vm for vm in agent.sim.show()["vms"] if vm["name"] == launcher.pod)
        agent.sim.stop_vm(found["name"])
