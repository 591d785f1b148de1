"""Every right for VMs is used by a test, and all other requests are refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.manifests.rbac import RIGHTS
from support.cluster import Cluster, RealCluster, StandinCluster
from support.cluster_real import RealServer
from system.kubernetes.agent_rights import CONTROLLER, NS, OTHER_NODE, OWN_NODE, patch_node
from system.kubernetes.api_user import Answer
from system.kubernetes.refusals import OWNED
from system.kubernetes.vm_rights import (
    ADMISSION,
    API,
    DEFINITION,
    DEFINITIONS,
    DEVICES,
    EXEC_DRIVER,
    EXEC_LAUNCHER,
    FREE,
    HARVESTER,
    KINDS,
    LAUNCHER,
    MACHINE,
    MAPS,
    POOL,
    SECRETS,
    SETTINGS,
    USES,
    WEBHOOK,
    VmEnvironment,
    event,
    item,
    path,
)

EACH = sorted({(right.account, right.resource, verb) for right in RIGHTS if right.devices for verb in right.verbs})
EVENTS = "/api/v1/namespaces/default/events"
OWN, REQUEST, NODE = "only objects of its own node", "may not change spec", "only its own node"
LABEL: Any = {"metadata": {"labels": {"a": "other"}}}
NOTE: Any = {"metadata": {"annotations": {"a": "b"}}}
NEEDED: Any = {"metadata": {"labels": {names.DRIVER_NEEDED_LABEL: "true"}}}
CORDON: Any = {"spec": {"unschedulable": True}}
CLAIM, OWN_PATH, REMOTE_PATH = path("pcideviceclaims"), f"/api/v1/nodes/{OWN_NODE}", f"/api/v1/nodes/{OTHER_NODE}"
REMOTE_VGPU, VM_EVENT = f"{OTHER_NODE}-000008004", event("vm", "VirtualMachine", "kubevirt.io/v1")
FINALIZERS = "may remove finalizers"
SHOWN = "<node>-vgpus of its own node"
RENAME, ENTER = "may rename", "'env' in launchers"


class Try(msgspec.Struct, frozen=True):
    """``who`` is an account, or ``loose`` for the devices agent's account with a token that is not bound to a pod."""

    who: str
    what: str
    words: str
    method: str
    path: str
    body: Any = None

    def __call__(self, cluster_environment: VmEnvironment) -> Answer:
        return cluster_environment.user(self.who).ask(self.method, self.path, self.body)


def _machine(**devices: Any) -> Any:
    return {"spec": {"template": {"spec": {"domain": {"devices": devices}}}}}


def _of_others(plural: str) -> list[Try]:
    label = {"metadata": {"labels": {"a": "c"}}}
    other = path(plural, OTHER_NODE)
    # It may neither make nor delete claims of USB devices at all.
    words = "" if plural == "usbdeviceclaims" else OWN
    return [
        Try(DEVICES, f"another node's {plural}", OWN, "PATCH", other, label),
        Try(DEVICES, f"the status of another node's {plural}", OWN, "PATCH", f"{other}/status", {"status": {"a": "b"}}),
        Try(DEVICES, f"deleting another node's {plural}", words, "DELETE", other),
        Try(
            DEVICES, f"making another node's {plural}", words, "POST", f"{API}/{plural}", item(plural, OTHER_NODE, FREE)
        ),
        Try("loose", f"{plural}, with an unbound token", OWN, "PATCH", path(plural), label),
    ]


# Kubernetes fills such a Secret with a token of the account that it names, whichever it is.
_TOKEN = {
    "metadata": {"name": WEBHOOK, "annotations": {"kubernetes.io/service-account.name": DEVICES}},
    "type": "kubernetes.io/service-account-token",
}
_VM = _machine(gpus=[{"name": "one", "deviceName": "nvidia.com/NVIDIA_A2-16Q"}])
_MORE = _machine(gpus=[{"name": n, "deviceName": "nvidia.com/NVIDIA_A2-4Q"} for n in ("one", "three")])
_DISPLAY = {"name": "one", "deviceName": "nvidia.com/NVIDIA_A2-4Q", "virtualGPUOptions": {"display": {}}}
_MEMORY: Any = {"spec": {"template": {"spec": {"domain": {"memory": {}}}}}}
_GATES: Any = {"spec": {"configuration": {"developerConfiguration": {"featureGates": []}}}}
_SHORT: Any = {"spec": {"names": {"shortNames": ["mig"]}}}
REFUSED = [
    *(each for plural in KINDS for each in _of_others(plural)),
    Try(DEVICES, "another node's document", SHOWN, "POST", MAPS, {"metadata": {"name": f"{OTHER_NODE}-vgpus"}}),
    Try(DEVICES, "the other agent's document", SHOWN, "POST", MAPS, {"metadata": {"name": f"{OWN_NODE}-gpus"}}),
    Try(DEVICES, "every ConfigMap", "", "GET", MAPS),
    Try(DEVICES, "a wish", REQUEST, "PATCH", path("vgpudevices"), {"spec": {"enabled": False}}),
    Try(DEVICES, "a layout", REQUEST, "PATCH", path("migconfigurations"), {"spec": {"enabled": False}}),
    Try(DEVICES, "a number of functions", REQUEST, "PATCH", path("sriovnetworkdevices"), {"spec": {"numVFs": 4}}),
    Try(DEVICES, "a claim's user", REQUEST, "PATCH", path("usbdeviceclaims"), {"spec": {"userName": "me"}}),
    Try(DEVICES, "a user's claim of a USB device", "", "DELETE", path("usbdeviceclaims")),
    Try(DEVICES, "a user's claim", "no user's", "DELETE", path("pcideviceclaims")),
    Try(DEVICES, "other labels of its node", "only the label", "PATCH", OWN_PATH, LABEL),
    Try(DEVICES, "the cordon", "the spec of a node", "PATCH", OWN_PATH, CORDON),
    Try(DEVICES, "another node", NODE, "PATCH", REMOTE_PATH, NEEDED),
    Try(DEVICES, "its node's owner", "the spec of a node", "PATCH", OWN_PATH, OWNED),
    Try(DEVICES, "a machine's owner", "annotation", "PATCH", MACHINE, OWNED),
    Try(DEVICES, "a machine's label", "annotation", "PATCH", MACHINE, LABEL),
    Try(DEVICES, "a machine's other annotations", "annotation", "PATCH", MACHINE, NOTE),
    Try(DEVICES, "stopping a machine", RENAME, "PATCH", MACHINE, {"spec": {"running": False}}),
    Try(DEVICES, "a machine's type of device", RENAME, "PATCH", MACHINE, _VM),
    Try(DEVICES, "a machine's number of devices", RENAME, "PATCH", MACHINE, _MORE),
    Try(DEVICES, "a machine's display", RENAME, "PATCH", MACHINE, _machine(gpus=[_DISPLAY])),
    Try(DEVICES, "a machine's disks", RENAME, "PATCH", MACHINE, _machine(disks=[])),
    Try(DEVICES, "a machine's host devices", RENAME, "PATCH", MACHINE, _machine(hostDevices=None)),
    Try(DEVICES, "a machine's memory", RENAME, "PATCH", MACHINE, _MEMORY),
    Try(DEVICES, "deleting machines", "", "DELETE", MACHINE),
    Try(DEVICES, "events about other nodes' objects", "its own node and", "POST", EVENTS, event(REMOTE_VGPU)),
    Try(DEVICES, "events about machines", "its own node and", "POST", EVENTS, VM_EVENT),
    Try(DEVICES, "deleting pods", "", "DELETE", f"/api/v1/namespaces/default/pods/{LAUNCHER}"),
    Try(DEVICES, "secrets", "", "GET", SECRETS),
    Try(DEVICES, "definitions", "", "PATCH", DEFINITION, LABEL),
    Try(CONTROLLER, "every definition", "", "GET", DEFINITIONS),
    Try(CONTROLLER, "a definition of others", "", "PATCH", f"{DEFINITIONS}/virtualmachines.kubevirt.io", LABEL),
    Try(CONTROLLER, "a definition's label", "metadata of a definition", "PATCH", DEFINITION, LABEL),
    Try(CONTROLLER, "a definition's names", "add to the versions", "PATCH", DEFINITION, _SHORT),
    Try(CONTROLLER, "deleting definitions", "", "DELETE", DEFINITION),
    Try(DEVICES, "KubeVirt's settings", "", "PATCH", SETTINGS, LABEL),
    Try(CONTROLLER, "a claim's wish", FINALIZERS, "PATCH", CLAIM, {"spec": {"userName": "me"}}),
    Try(CONTROLLER, "a USB claim's labels", FINALIZERS, "PATCH", path("usbdeviceclaims"), LABEL),
    Try(CONTROLLER, "a claim's labels", FINALIZERS, "PATCH", CLAIM, LABEL),
    Try(CONTROLLER, "a vGPU's other labels", "only the label", "PATCH", path("vgpudevices"), LABEL),
    Try(CONTROLLER, "a GPU's other annotations", "only the label", "PATCH", path("sriovgpudevices"), NOTE),
    Try(CONTROLLER, "a layout's owner", "may change only", "PATCH", path("migconfigurations"), OWNED),
    Try(CONTROLLER, "a function's label", "", "PATCH", path("pcidevices"), LABEL),
    Try(CONTROLLER, "a pool's request", "finalizers of pools", "PATCH", POOL, {"spec": {"count": 3}}),
    Try(CONTROLLER, "a pool's labels", "finalizers of pools", "PATCH", POOL, LABEL),
    Try(CONTROLLER, "deleting pools", "", "DELETE", POOL),
    Try(DEVICES, "pools", "", "GET", POOL),
    Try(CONTROLLER, "KubeVirt's gates", "permittedHostDevices", "PATCH", SETTINGS, _GATES),
    Try(CONTROLLER, "KubeVirt's version", "permittedHostDevices", "PATCH", SETTINGS, {"spec": {"imageTag": "v1"}}),
    Try(CONTROLLER, "KubeVirt's annotations", "annotation", "PATCH", SETTINGS, NOTE),
    Try(CONTROLLER, "the owner of KubeVirt's settings", "annotation", "PATCH", SETTINGS, OWNED),
    Try(CONTROLLER, "a claim's owner", FINALIZERS, "PATCH", CLAIM, OWNED),
    Try(CONTROLLER, "machines", "", "PATCH", MACHINE, LABEL),
    Try(CONTROLLER, "other secrets", "only the Secret", "POST", SECRETS, {"metadata": {"name": "other"}}),
    Try(CONTROLLER, "another account's token", "kubernetes.io/tls", "POST", SECRETS, _TOKEN),
    Try(CONTROLLER, "reading other secrets", "", "GET", f"{SECRETS}/other"),
    Try(CONTROLLER, "secrets elsewhere", "", "GET", f"/api/v1/namespaces/{HARVESTER}/secrets/aliquot-webhook"),
    Try(CONTROLLER, "others' webhooks", "", "PATCH", f"{ADMISSION}/validatingwebhookconfigurations/other", {}),
    Try(CONTROLLER, "entering pods", "", "GET", EXEC_LAUNCHER),
]  # fmt: skip
_IN = "/api/v1/namespaces"
ENTERING = [
    Try(DEVICES, "other commands in launchers", ENTER, "GET", EXEC_LAUNCHER.replace("=env", "=sh")),
    Try(DEVICES, "more words", ENTER, "GET", f"{EXEC_LAUNCHER}&command=-0"),
    Try(DEVICES, "other containers", ENTER, "GET", EXEC_LAUNCHER.replace("compute", "volume")),
    Try(DEVICES, "other pods", ENTER, "GET", f"{_IN}/{NS}/pods/aliquot-controller-1/exec?container=c&command=env"),
    Try(DEVICES, "a driver elsewhere", ENTER, "GET", EXEC_DRIVER.replace(f"{_IN}/{HARVESTER}", f"{_IN}/default")),
    Try("loose", "any pod, with an unbound token", "bound to its pod", "GET", EXEC_DRIVER),
]


def _built(cluster: Cluster) -> Iterator[VmEnvironment]:
    """Provide one environment for all tests of this file."""
    cluster_environment = VmEnvironment(cluster)
    # A real server takes a moment to follow new policies.
    cluster.wait(lambda: all(a(cluster_environment).status == 403 for a in REFUSED if a.words), "the policies")
    cluster_environment.reset()
    yield cluster_environment
    cluster_environment.close()
    cluster.close()


@pytest.fixture(scope="module")
def standin_machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VmEnvironment]:
    yield from _built(StandinCluster(tmp_path_factory.mktemp("rights")))


@pytest.fixture(scope="module")
def real_machines(real_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VmEnvironment]:
    yield from _built(RealCluster(real_server, tmp_path_factory.mktemp("rights")))


@pytest.fixture(scope="module", params=["standin", "real"])
def environment(request: pytest.FixtureRequest) -> VmEnvironment:
    found: VmEnvironment = request.getfixturevalue(f"{request.param}_machines")
    return found


def test_each_right_has_a_use_and_each_use_a_right() -> None:
    uses = {(who, resource, verb) for (who, resource), verbs in USES.items() for verb in verbs}
    assert uses == set(EACH)


@pytest.mark.parametrize(("who", "resource", "verb"), EACH)
def test_a_right_is_there(environment: VmEnvironment, who: str, resource: str, verb: str) -> None:
    answer = USES[who, resource][verb](environment, environment.user(who))
    assert answer.allowed, answer.message


@pytest.mark.parametrize("attempt", REFUSED, ids=[f"{each.who}: {each.what}" for each in REFUSED])
def test_everything_else_is_refused(environment: VmEnvironment, attempt: Try) -> None:
    environment.reset()
    answer = attempt(environment)
    assert answer.status == 403, f"{answer.status} {answer.message}"
    assert attempt.words in answer.message


@pytest.mark.parametrize("attempt", ENTERING, ids=[f"{each.who}: {each.what}" for each in ENTERING])
def test_pods_that_a_policy_keeps_it_out_of(environment: VmEnvironment, attempt: Try) -> None:
    answer = attempt(environment)
    assert answer.status == 403, f"{answer.status} {answer.message}"
    assert attempt.words in answer.message


def test_its_own_node_may_be_reported(environment: VmEnvironment) -> None:
    # And an administrator may do what the accounts may not.
    body = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}
    assert patch_node(environment.admin, OTHER_NODE, body).status == 200
    assert environment.admin.ask("PATCH", path("vgpudevices", OTHER_NODE), {"spec": {"enabled": False}}).status == 200
