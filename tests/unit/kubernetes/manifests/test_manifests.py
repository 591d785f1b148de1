"""Manifests: generated from code, with the names that other components rely on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from aliquot.cli.tables.agent import AGENT, CONTROLLER
from aliquot.core.config import settings_text
from aliquot.core.config.formats import gpu_clients
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.config.settings import Layer
from aliquot.core.model import catalog
from aliquot.foundation.bounded_process import KILLED_S
from aliquot.foundation.driver_calls import SLOW_WRITE_S
from aliquot.hardware.host import RESET_TIMEOUT_S
from aliquot.hardware.kernel.sriov_manage import TIMEOUT_S as SRIOV_MANAGE_S
from aliquot.hardware.nvidia_smi.command import WRITE_TIMEOUT_S
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.agent.loop import EXIT_S
from aliquot.kubernetes.manifests import bundle
from aliquot.kubernetes.manifests import config_maps as maps
from aliquot.kubernetes.manifests.rbac import RIGHTS
from aliquot.kubernetes.manifests.rbac_dashboard import USER_RIGHTS
from aliquot.kubernetes.manifests.values import DASHBOARD, Values, beside_operator
from aliquot.kubernetes.manifests.workload import AGENT_GRACE_S
from aliquot.kubernetes.node_agent.agent_run import CLOSE_S
from support.factory import inventory

ROOT = Path(__file__).resolve().parents[4]
FOLDERS = {"kubernetes": bundle.files(Values()), "kubernetes-machines": bundle.vm_files(Values())}
OBJECTS = [item for objects in FOLDERS["kubernetes"].values() for item in objects]
MACHINES = [item for objects in FOLDERS["kubernetes-machines"].values() for item in objects]
EACH = OBJECTS + [item for item in MACHINES if item not in OBJECTS]


def one(kind: str, name: str, objects: list[Any] = OBJECTS) -> Any:
    (found,) = [item for item in objects if (item["kind"], item["metadata"]["name"]) == (kind, name)]
    return found


def test_the_files_are_what_the_code_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools/build_manifests.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_files_say_what_the_objects_say() -> None:
    # Comments and literal blocks add nothing and lose nothing.
    for folder, files in FOLDERS.items():
        for name, objects in files.items():
            assert list(yaml.safe_load_all((ROOT / f"deploy/{folder}/{name}.yaml").read_text())) == objects


def test_an_agents_pod_outlasts_the_longest_driver_call_of_a_change() -> None:
    # The kubelet kills a process that has not ended by then, which would leave the change half done.
    longest = max(SLOW_WRITE_S, *(bound + KILLED_S for bound in (RESET_TIMEOUT_S, SRIOV_MANAGE_S, WRITE_TIMEOUT_S)))
    assert longest + EXIT_S + CLOSE_S + 60 <= AGENT_GRACE_S
    sets = [item for item in EACH if item["kind"] == "DaemonSet"]
    pods = {item["metadata"]["name"]: item["spec"]["template"]["spec"] for item in sets}
    assert {name for name, pod in pods.items() if pod.get("terminationGracePeriodSeconds") == AGENT_GRACE_S} == set(
        pods
    )


def key(item: Any) -> tuple[str, str, str]:
    return item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "")


def test_what_both_folders_have_is_the_same_in_both() -> None:
    # Applying one after the other then changes nothing back and forth.
    containers, machines = ({key(item): item for item in items} for items in (OBJECTS, MACHINES))
    both = containers.keys() & machines.keys()
    assert ("Deployment", "aliquot-controller", "gpu-operator") in both
    assert {each: containers[each] for each in both} == {each: machines[each] for each in both}
    assert not [item for item in MACHINES if item["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"]


def test_nothing_beside_the_operator_has_a_name_that_it_deletes() -> None:
    # The operator deletes the objects of its MIG manager by name, in its namespace. The pods are found as before.
    objects = [item for items in bundle.files(beside_operator()).values() for item in items]
    taken = {("DaemonSet", "nvidia-mig-manager"), ("ConfigMap", "default-mig-parted-config")}
    taken |= {("ConfigMap", "default-gpu-clients"), ("ServiceAccount", "nvidia-mig-manager")}
    assert not taken & {(item["kind"], item["metadata"]["name"]) for item in objects}
    assert taken - {("ServiceAccount", "nvidia-mig-manager")} < {(i["kind"], i["metadata"]["name"]) for i in OBJECTS}
    taken |= {("DaemonSet", "nvidia-vgpu-device-manager"), ("ConfigMap", "default-vgpu-devices-config")}
    template, claims, vgpus = [item["spec"]["template"] for item in objects if item["kind"] == "DaemonSet"]
    assert not taken & {(item["kind"], item["metadata"]["name"]) for item in objects}
    assert vgpus["metadata"]["labels"]["app"] == vgpus["spec"]["containers"][0]["name"] == "nvidia-vgpu-device-manager"
    assert vgpus["spec"]["nodeSelector"]["nvidia.com/gpu.deploy.vgpu-device-manager"] == "true"
    assert claims["metadata"]["labels"]["app"] == "aliquot-claims"
    assert template["metadata"]["labels"]["app"] == template["spec"]["containers"][0]["name"] == "nvidia-mig-manager"
    mounted = {v["configMap"]["name"] for v in template["spec"]["volumes"] if "configMap" in v}
    assert mounted < {item["metadata"]["name"] for item in objects if item["kind"] == "ConfigMap"}


def test_names_that_scripts_select_by() -> None:
    agent = one("DaemonSet", "nvidia-mig-manager")
    template = agent["spec"]["template"]
    assert agent["metadata"]["namespace"] == "gpu-operator"
    assert template["metadata"]["labels"]["app"] == "nvidia-mig-manager"
    assert agent["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    pod = template["spec"]
    assert [container["name"] for container in pod["containers"]] == ["nvidia-mig-manager"]
    assert pod["nodeSelector"]["nvidia.com/gpu.deploy.mig-manager"] == "true"
    assert pod["priorityClassName"] == "system-node-critical"
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]


def test_variables_have_the_peers_names() -> None:
    container = one("DaemonSet", "nvidia-mig-manager")["spec"]["template"]["spec"]["containers"][0]
    known = (
        "NODE_NAME POD_NAME POD_NAMESPACE HOST_ROOT_MOUNT DEFAULT_CONFIG_FILE GPU_CLIENTS_FILE WITH_REBOOT "
        "MIG_STRATEGY DEFAULT_GPU_CLIENTS_NAMESPACE WITH_SHUTDOWN_HOST_GPU_CLIENTS CDI_ENABLED NVIDIA_CDI_HOOK_PATH"
    )
    assert {entry["name"] for entry in container["env"]} == set(known.split())
    plain = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    assert settings_text.from_environment(plain).values == {
        "strategy": "single",
        "with_reboot": False,
        "stop_host_clients": False,
        "cdi": True,
    }


def test_the_devices_agent_sees_the_host_as_configured() -> None:
    pod = one("DaemonSet", "aliquot-devices", MACHINES)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert mounts["host"]["readOnly"]
    assert "readOnly" not in mounts["sys"]
    plain = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    assert plain["HOST_ROOT_MOUNT"] == mounts["host"]["mountPath"]
    assert {option.env for option in AGENT.options} >= plain.keys() - {"POD_NAME"}
    assert "--devices" in container["args"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert pod["hostPID"]


def test_the_controller_serves_machines_where_its_map_says_so() -> None:
    # Its pod is the same in both folders. Only one of them contains the ConfigMap.
    entries = one("Deployment", "aliquot-controller")["spec"]["template"]["spec"]["containers"][0]["env"]
    every = {e["name"]: e["valueFrom"]["configMapKeyRef"] for e in entries if "configMapKeyRef" in e["valueFrom"]}
    found = {name: each for name, each in every.items() if each["name"] != "aliquot-extender"}
    assert found.keys() <= {option.env for option in CONTROLLER.options}
    data = one("ConfigMap", "aliquot-devices", MACHINES)["data"]
    assert {each["key"] for each in found.values()} == data.keys()
    assert {each["name"] for each in found.values() if each["optional"]} == {"aliquot-devices"}
    assert not [item for item in OBJECTS if key(item)[:2] == ("ConfigMap", "aliquot-devices")]
    service = one("Service", "aliquot-webhook", MACHINES)["spec"]
    ports = one("Deployment", "aliquot-controller")["spec"]["template"]["spec"]["containers"][0]["ports"]
    assert {p["name"]: str(p["containerPort"]) for p in ports}[service["ports"][0]["targetPort"]] == data[
        "webhook-port"
    ]


def test_the_controller_serves_the_extender_where_its_map_says_so() -> None:
    container = one("Deployment", "aliquot-controller")["spec"]["template"]["spec"]["containers"][0]
    refs = {e["name"]: e["valueFrom"].get("configMapKeyRef", {}) for e in container["env"]}
    found = {name: each for name, each in refs.items() if each.get("name") == "aliquot-extender"}
    assert found.keys() <= {option.env for option in CONTROLLER.options}
    assert all(each["optional"] for each in found.values())
    data = one("ConfigMap", "aliquot-extender")["data"]
    assert {each["key"] for each in found.values()} == data.keys()
    target = one("Service", "aliquot-extender")["spec"]["ports"][0]["targetPort"]
    assert {p["name"]: str(p["containerPort"]) for p in container["ports"]}[target] == data["port"]


def test_mounts_and_volumes_belong_together() -> None:
    pod = one("DaemonSet", "nvidia-mig-manager")["spec"]["template"]["spec"]
    mounts = {mount["name"]: mount for mount in pod["containers"][0]["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    assert mounts["host"]["readOnly"]
    plain = {entry["name"]: entry.get("value", "") for entry in pod["containers"][0]["env"]}
    for variable in ("DEFAULT_CONFIG_FILE", "GPU_CLIENTS_FILE"):
        folder, _, key = plain[variable].rpartition("/")
        (volume,) = [v for v in pod["volumes"] if mounts[v["name"]]["mountPath"] == folder]
        assert key in one("ConfigMap", volume["configMap"]["name"])["data"]
    assert plain["HOST_ROOT_MOUNT"] == mounts["host"]["mountPath"]


def test_probes_ask_the_port_that_the_program_serves() -> None:
    for kind, name in (
        ("DaemonSet", "nvidia-mig-manager"),
        ("Deployment", "aliquot-controller"),
        ("DaemonSet", "aliquot-devices"),
    ):
        (container,) = one(kind, name, EACH)["spec"]["template"]["spec"]["containers"]
        port = container["ports"][0]
        assert f"--port={port['containerPort']}" in container["args"]
        for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
            assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}


def test_the_controller_has_no_privileges() -> None:
    pod = one("Deployment", "aliquot-controller")["spec"]["template"]["spec"]
    assert "volumes" not in pod
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


HOST_PATHS = {
    # path: whether the agent's pod may write there
    "/": False,
    "/dev": True,
    "/sys": True,
    "/var/lib/kubelet/device-plugins": True,
    "/var/lib/kubelet/pod-resources": False,
    "/var/lib/aliquot": True,
    "/run/aliquot": True,
}
ON_THE_HOST: dict[str, dict[str, bool]] = {
    "nvidia-mig-manager": HOST_PATHS | {"/var/run/cdi": True},
    "aliquot-devices": HOST_PATHS,
    "aliquot-controller": {},
    "aliquot-dashboard": {},
}


@pytest.mark.parametrize("name", ON_THE_HOST)
def test_a_pod_sees_no_more_of_its_host_than_is_listed(name: str) -> None:
    kind = "DaemonSet" if ON_THE_HOST[name] else "Deployment"
    pod = one(kind, name, EACH)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    seen = {v["name"]: v["hostPath"]["path"] for v in pod.get("volumes", ()) if "hostPath" in v}
    mounts = {m["name"]: m for m in container.get("volumeMounts", ())}
    assert {path: not mounts[volume].get("readOnly", False) for volume, path in seen.items()} == ON_THE_HOST[name]
    assert not pod.get("hostNetwork")
    assert not pod.get("hostIPC")
    assert container["securityContext"]["readOnlyRootFilesystem"]
    if kind == "Deployment":
        assert not pod.get("hostPID")
        assert pod["securityContext"]["runAsNonRoot"]
        assert not container["securityContext"]["allowPrivilegeEscalation"]


def test_rights_are_spelled_out() -> None:
    assert not [right for right in RIGHTS if "*" in (right.group, right.resource, *right.verbs)]
    private = [right for right in RIGHTS if right.resource.partition("/")[0] in ("secrets", "serviceaccounts")]
    assert {(right.account, right.scope, right.resource_names, right.verbs) for right in private} == {
        ("aliquot-controller", "own namespace", ("aliquot-webhook",), ("get", "patch")),
        ("aliquot-controller", "own namespace", (), ("create",)),
    }
    rules = [rule for item in EACH if item["kind"] in ("Role", "ClusterRole") for rule in item["rules"]]
    assert len(rules) == len(RIGHTS) + len(USER_RIGHTS)


def test_a_cluster_without_virtual_machines_gives_no_right_to_them() -> None:
    # The page is optional: it reads VMs as soon as there are some.
    roles = [i for i in OBJECTS if i["kind"] in ("Role", "ClusterRole")]
    rules = [r for i in roles if not i["metadata"]["name"].startswith(DASHBOARD) for r in i["rules"]]
    assert not [rule for rule in rules if {"kubevirt.io", "admissionregistration.k8s.io"} & set(rule["apiGroups"])]
    assert not [rule for rule in rules if {"secrets", "pods/exec"} & set(rule["resources"])]


def test_every_policy_is_bound_and_denies() -> None:
    policies = {i["metadata"]["name"] for i in EACH if i["kind"] == "ValidatingAdmissionPolicy"}
    bindings = [i for i in EACH if i["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {b["spec"]["policyName"] for b in bindings} == policies
    assert all(b["spec"]["validationActions"] == ["Deny"] for b in bindings)
    assert all(one("ValidatingAdmissionPolicy", name, EACH)["spec"]["failurePolicy"] == "Fail" for name in policies)


def test_the_nine_services_of_the_operator() -> None:
    text = one("ConfigMap", "default-gpu-clients")["data"]["clients.yaml"]
    assert yaml.safe_load(text) == {"version": "v1", "systemd-services": list(gpu_clients.DEFAULT)}
    assert len(gpu_clients.DEFAULT) == 9


def test_the_settings_map_says_nothing_and_shows_everything() -> None:
    text = one("ConfigMap", names.SETTINGS_MAP)["data"]["settings.yaml"]
    assert settings_text.read(text, "f") == Layer("f")
    bare = "\n".join(line.removeprefix("# ") for line in text.splitlines() if "Settings of all nodes" not in line)
    shown = settings_text.read(bare, "f")
    assert {key.field for key in settings_text.KEYS} <= set(shown.values)


FALLBACK = load(maps.fallback(), "default-mig-parted-config")
PRODUCTS = [d for d in catalog.devices() if d.mig_family and d.pci_device.startswith("0x")]


@pytest.mark.parametrize("product", PRODUCTS, ids=[f"{d.name} {d.pci_device}" for d in PRODUCTS])
def test_the_fallback_means_on_every_gpu_what_its_own_generated_configs_mean(product: catalog.Device) -> None:
    import msgspec

    node = inventory(product.mig_family or "")
    node = msgspec.structs.replace(
        node, gpus=(msgspec.structs.replace(node.gpus[0], pci_device=product.pci_device, product=product.name),)
    )
    own = load(to_yaml(generate(node)), "generated")
    for name in own.names:
        mine, theirs = select(FALLBACK, name, node), select(own, name, node)
        assert not mine.failures
        assert [(g.pci, g.mig, g.instances) for g in mine.gpus] == [(g.pci, g.mig, g.instances) for g in theirs.gpus]
