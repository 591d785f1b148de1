"""The chart as Helm's own engine renders it, compared with the plain manifests."""

from __future__ import annotations

import copy
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from helm_python import Chart
from helm_python.errors import HelmRenderError, HelmValuesError

from aliquot import __version__
from aliquot.core.config import settings, settings_text
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.manifests import bundle, pcidevices_addon
from aliquot.kubernetes.manifests.values import Values, beside_operator

CHART = Path(__file__).resolve().parents[3] / "deploy/helm/aliquot"

IMAGE = f"registry.example/aliquot:{__version__}"
Objects = dict[tuple[str, str, str], Any]
DAEMON_SET = ("DaemonSet", "nvidia-mig-manager", "gpu-operator")
SETTINGS = ("ConfigMap", names.SETTINGS_MAP, "gpu-operator")


def helm(values: dict[str, Any], namespace: str = "gpu-operator") -> str:
    """Return ``helm template aliquot CHART`` as one text. The image is that of ``IMAGE`` if the values name none.
    Raises HelmValuesError and HelmRenderError.
    """
    values = {"image": {"repository": IMAGE.rpartition(":")[0]}} | values
    return "\n---\n".join(text for name, text in _files(values, namespace).items() if not name.endswith("NOTES.txt"))


def _files(values: dict[str, Any], namespace: str = "gpu-operator") -> dict[str, str]:
    with Chart.load(CHART) as chart:
        return dict(chart.render(values, name="aliquot", namespace=namespace))


def rendered(values: dict[str, Any], namespace: str = "gpu-operator") -> Objects:
    return by_name([item for item in yaml.safe_load_all(helm(values, namespace)) if item])


def by_name(items: list[Any]) -> Objects:
    return {(i["kind"], i["metadata"]["name"], i["metadata"].get("namespace", "")): i for i in items}


def plain(namespace: str = "gpu-operator") -> Objects:
    found = bundle.files(Values(namespace=namespace, image=IMAGE))
    return by_name([i for name, items in found.items() if name[:2].isdigit() and name[:2] != "00" for i in items])


def machines(values: Values) -> Objects:
    found = bundle.vm_files(msgspec.structs.replace(values, image=IMAGE))
    return by_name([i for name, items in found.items() if name[:2].isdigit() and name[:2] != "00" for i in items])


def variables(objects: Objects) -> dict[str, str]:
    (container,) = objects[DAEMON_SET]["spec"]["template"]["spec"]["containers"]
    assert len({entry["name"] for entry in container["env"]}) == len(container["env"])
    return {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}


def messages(objects: Objects) -> settings.AgentSettings:
    text = objects[SETTINGS]["data"][names.SETTINGS_KEY]
    return settings.merge((settings_text.read(text, "rendered"),))


@pytest.mark.parametrize(
    ("strategy", "layout", "remark"),
    [
        ("single", "all-1g.10gb", "needs one profile per node"),
        ("mixed", "all-balanced", ""),
        ("none", "all-balanced", "none offers only whole GPUs"),
    ],
)
def test_the_notes_propose_a_layout_that_the_strategy_offers(strategy: str, layout: str, remark: str) -> None:
    values = {"image": {"repository": IMAGE.rpartition(":")[0]}, "mig": {"strategy": strategy}}
    (notes,) = (text for name, text in _files(values).items() if name.endswith("NOTES.txt"))
    assert f"nvidia.com/mig.config={layout} " in notes
    assert ("The strategy" in notes) == bool(remark)
    assert remark in notes


@pytest.mark.parametrize("namespace", ["gpu-operator", "elsewhere"])
def test_without_values_it_is_the_manifests(namespace: str) -> None:
    found, expected = rendered({}, namespace), plain(namespace)
    assert set(found) == set(expected)
    where = ("ConfigMap", names.SETTINGS_MAP, namespace)
    assert (
        settings.merge((settings_text.read(found[where]["data"][names.SETTINGS_KEY], "f"),)) == settings.AgentSettings()
    )
    for key in set(found) - {where}:
        assert found[key] == expected[key], key


def test_the_installation_of_the_operators_page() -> None:
    values = {
        "mig": {"strategy": "mixed"},
        "migManager": {"env": [{"name": "WITH_REBOOT", "value": "true"}]},
        "driver": {"enabled": False},
    }
    found = rendered(values)
    changed = variables(found)
    assert changed["WITH_REBOOT"] == "true"
    assert changed["MIG_STRATEGY"] == "mixed"
    assert changed["WITH_SHUTDOWN_HOST_GPU_CLIENTS"] == "true"
    assert changed.keys() == variables(plain()).keys()
    rest, expected = copy.deepcopy(found), plain()
    for objects in (rest, expected):
        objects[DAEMON_SET]["spec"]["template"]["spec"]["containers"][0]["env"] = []
        objects.pop(SETTINGS)
    assert rest == expected


@pytest.mark.parametrize(
    ("config", "made"),
    [
        ({"name": "c", "create": True, "data": {"config.yaml": "version: v1\n"}}, True),
        ({"name": "c", "create": True, "data": {}}, False),
        ({"name": "c", "create": False, "data": {"config.yaml": "version: v1\n"}}, False),
    ],
)
def test_the_config_map_is_made_with_create_and_data(config: dict[str, Any], made: bool) -> None:
    found = rendered({"migManager": {"config": config}})
    key = ("ConfigMap", "c", "gpu-operator")
    assert (key in found) == made
    assert messages(found).config_map == "c"
    if made:
        assert found[key]["data"] == config["data"]


def test_other_values() -> None:
    values = {
        "image": {"repository": "registry.example/aliquot", "tag": "x", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "migManager": {
            "gpuClientsConfig": {"name": "gpu-clients"},
            "config": {"default": ""},
            "resources": {"limits": {"memory": "1Gi"}},
            "env": [{"name": "NVIDIA_DRIVER_ROOT", "value": "/"}],
        },
        "devicePlugin": {"enabled": False},
        "gfd": {"enabled": False},
        "cdi": {"enabled": False},
        "controller": {"replicas": 2},
        "daemonsets": {"tolerations": [{"operator": "Exists"}]},
        "metrics": {"serviceMonitor": {"enabled": True}},
        "settings": {"holders": {"policy": "drain"}, "mig": {"prediction": "warn"}},
    }
    found = rendered(values)
    pod = found[DAEMON_SET]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry.example/aliquot:x", "Always")
    assert container["resources"]["limits"]["memory"] == "1Gi"
    assert pod["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v} == {
        names.DEFAULT_CONFIG_MAP,
        "gpu-clients",
    }
    assert variables(found)["CDI_ENABLED"] == "false"
    assert variables(found)["NVIDIA_DRIVER_ROOT"] == "/"
    assert found["Deployment", "aliquot-controller", "gpu-operator"]["spec"]["replicas"] == 2
    assert ("ServiceMonitor", "aliquot", "gpu-operator") in found
    assert messages(found) == settings.AgentSettings(
        default_config="", device_plugin=False, labels=False, holders="drain", prediction="warn"
    )


def test_beside_the_operator_it_is_the_other_folder() -> None:
    found = rendered({"besideOperator": True})
    files = bundle.files(msgspec.structs.replace(beside_operator(), image=IMAGE))
    expected = by_name([i for name, items in files.items() if name[:2].isdigit() and name[:2] != "00" for i in items])
    for objects in (found, expected):
        objects.pop(SETTINGS)
    assert found == expected


def test_for_virtual_machines_alone_it_is_their_folder() -> None:
    found = rendered({"migManager": {"enabled": False}, "devices": {"enabled": True}})
    expected = machines(Values())
    for objects in (found, expected):
        objects.pop(SETTINGS)
    assert found == expected


@pytest.mark.parametrize("every", [False, True])
def test_rights_to_usb_devices_and_network_ports_come_with_all_devices(every: bool) -> None:
    found = rendered({"devices": {"enabled": True, "allDevices": every}})
    roles = {item["roleRef"]["name"] for item in found.values() if _binds(item, "aliquot-devices")}
    rules = [rule for name in roles for rule in found["ClusterRole", name, ""]["rules"]]
    named = {resource.partition("/")[0] for rule in rules for resource in rule["resources"]}
    assert ({"usbdevices", "usbdeviceclaims", "sriovnetworkdevices"} & named != set()) == every
    assert {"pcidevices", "vgpudevices"} < named


def _binds(item: Any, account: str) -> bool:
    return bool(item["kind"] == "ClusterRoleBinding" and item["subjects"][0]["name"] == account)


def test_for_both_it_is_both_folders() -> None:
    values: dict[str, object] = {"enabled": True, "driver": "pod"}
    values |= {"driverNamespace": "drivers", "kubevirtNamespace": "kubevirt"}
    found = rendered({"devices": values})
    expected = plain() | machines(Values(driver="pod", driver_namespace="drivers", kubevirt_namespace="kubevirt"))
    for objects in (found, expected):
        objects.pop(SETTINGS)
    assert found == expected


def test_cert_manager_makes_the_certificate() -> None:
    found = rendered({"devices": {"enabled": True}, "webhook": {"certManager": {"enabled": True}}}, "vms")
    certificate = found["Certificate", "aliquot-webhook", "vms"]["spec"]
    assert "aliquot-webhook.vms.svc" in certificate["dnsNames"]
    assert certificate["issuerRef"] == {"name": "aliquot-webhook", "kind": "Issuer"}
    assert ("Issuer", "aliquot-webhook", "vms") in found
    for kind in ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"):
        configuration = found[kind, "aliquot-webhook", ""]
        assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": "vms/aliquot-webhook"}
        assert {each["failurePolicy"] for each in configuration["webhooks"]} == {"Ignore"}, "nothing answers yet"
    pod = found["Deployment", "aliquot-controller", "vms"]["spec"]["template"]["spec"]
    assert pod["volumes"] == [{"name": "certificate", "secret": {"secretName": certificate["secretName"]}}]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert found["ConfigMap", "aliquot-devices", "vms"]["data"]["webhook-cert-dir"] == mount["mountPath"]
    roles = [item for (kind, _, _), item in found.items() if kind in ("ClusterRole", "Role")]
    given = {resource for role in roles for rule in role["rules"] for resource in rule["resources"]}
    # An account that may change webhook configurations has all rights in the end.
    assert not given & {"secrets", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"}


def test_with_cert_manager_harvesters_kinds_wait_once_it_is_reported() -> None:
    given = {"certManager": {"enabled": True, "failurePolicy": "Fail"}}
    found = rendered({"devices": {"enabled": True}, "webhook": given}, "vms")
    hooks = found["ValidatingWebhookConfiguration", "aliquot-webhook", ""]["webhooks"]
    assert {each["name"] for each in hooks if each["failurePolicy"] == "Fail"} == {"devices.aliquot.dev"}
    assert hooks[0]["clientConfig"]["service"]["namespace"] == "vms"


@pytest.mark.parametrize("values", [{}, {"devices": {"enabled": True}}, {"migManager": {"enabled": False}}])
def test_without_an_image_nothing_is_installed(values: dict[str, Any]) -> None:
    installs = values.get("migManager", {}).get("enabled", True)
    with pytest.raises(HelmRenderError, match=r"image\.repository is empty") if installs else nullcontext():
        assert not rendered(values | {"image": {"repository": ""}})


def test_the_driver_toolkit() -> None:
    location = "https://files.example/NVIDIA-Linux-x86_64-550.90.05-vgpu-kvm.run"
    toolkit = {"enabled": True, "location": location, "image": {"tag": "v1.5.1"}}
    values = {"migManager": {"enabled": False}, "devices": {"enabled": True}, "driverToolkit": toolkit}
    found = rendered(values, "vms")
    template = found["DaemonSet", "nvidia-driver-daemonset", "vms"]["spec"]["template"]
    assert template["metadata"]["labels"]["app"] == "nvidia-driver-daemonset"
    (container,) = template["spec"]["containers"]
    assert container["name"] == "nvidia-driver-ctr"
    assert container["image"].endswith("/harvester-nvidia-driver-toolkit:v1.5.1")
    assert {"name": "DRIVER_LOCATION", "value": location} in container["env"]
    (term,) = template["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term["matchExpressions"] == [
        {"key": "sriovgpu.harvesterhci.io/driver-needed", "operator": "In", "values": ["true"]},
        {"key": "harvesterhci.io/gpu-baremetal-workloads", "operator": "NotIn", "values": ["true"]},
    ]
    agent = found["DaemonSet", "aliquot-devices", "vms"]["spec"]["template"]["spec"]["containers"][0]
    assert {"name": "DRIVER_NAMESPACE", "value": "vms"} in agent["env"]


HTTPENDPOINT = "HTTPENDPOINT/NVIDIA-Linux-x86_64-vgpu-kvm.run"


@pytest.mark.parametrize("location", ["", HTTPENDPOINT, f"http://{HTTPENDPOINT}", "/srv/driver.run", "http://files"])
def test_could_not_resolve_host_httpendpoint(location: str) -> None:
    # harvester/harvester#5112: the placeholder was installed, and the driver's pod crashed for ever.
    toolkit = {"enabled": True, "location": location, "image": {"tag": "v1.5.1"}}
    with pytest.raises(HelmRenderError, match="give the URL of the vGPU host driver's"):
        helm({"driverToolkit": toolkit})


def test_turned_off_it_makes_nothing() -> None:
    assert rendered({"migManager": {"enabled": False}}) == {}


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"mig": {"strategy": "mixd"}}, "strategy"),
        ({"migManger": {}}, "migManger"),
        ({"devices": {"driver": "elsewhere"}}, "driver"),
        ({"devices": {"kubevirtNamespace": ""}}, "kubevirtNamespace"),
        ({"driverToolkit": {"enabled": True, "location": "https://a.example/d.run"}}, "image.tag is empty"),
        ({"migManager": {"config": {"default": "all-enabled"}}}, "default"),
        ({"migManager": {"env": [{"name": "WITH_REBOOT", "value": True}]}}, "env"),
        ({"migManager": {"config": {"create": True, "data": {"config.yaml": "x"}}}}, "needs migManager.config.name"),
        (
            {"vgpuDeviceManager": {"enabled": True}, "migManager": {"enabled": False}},
            "vgpuDeviceManager.enabled needs migManager.enabled",
        ),
        ({"devices": {"besidePcidevices": True}}, "devices.besidePcidevices needs devices.enabled"),
        ({"devices": {"allDevices": True}}, "devices.allDevices needs devices.enabled"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, Any], word: str) -> None:
    with pytest.raises((HelmRenderError, HelmValuesError), match=re.escape(word)):
        helm(values)


def test_network_policies_as_the_values_say() -> None:
    def policy(found: Objects, name: str) -> Any:
        return found["NetworkPolicy", name, "gpu-operator"]["spec"]

    peer, server = {"podSelector": {"matchLabels": {"app": "scraper"}}}, {"ipBlock": {"cidr": "192.0.2.1/32"}}
    out = [{"to": [server], "ports": [{"port": 6443}]}]
    values = {"metricsFrom": [peer], "webhookFrom": [server], "egress": out}
    found = rendered({"networkPolicy": values, "devices": {"enabled": True}})
    for name in ("nvidia-mig-manager", "aliquot-devices"):
        assert policy(found, name)["ingress"] == [{"ports": [{"port": "http"}], "from": [peer]}]
    controller = policy(found, "aliquot-controller")
    assert controller["ingress"][1] == {"ports": [{"port": "https"}], "from": [server]}
    assert (controller["policyTypes"], controller["egress"]) == (["Ingress", "Egress"], out)
    off = rendered({"networkPolicy": {"enabled": False}, "devices": {"enabled": True}})
    assert not [key for key in off if key[0] == "NetworkPolicy"]
    with pytest.raises(HelmValuesError):  # an empty list would admit all
        helm({"networkPolicy": {"metricsFrom": []}})


def test_claims_are_not_read_until_a_value_allows_them() -> None:
    def may_read(found: Objects) -> list[str]:
        return [key[1] for key, item in found.items() if "resourceclaims" in str(item.get("rules", ""))]

    assert may_read(rendered({})) == []
    assert may_read(rendered({"dra": {"enabled": True}})) == ["aliquot-agent-claims"]
    assert may_read(rendered({"allocation": "dra"})) == ["aliquot-agent-claims"]


def test_the_agent_of_vgpus_beside_the_operators_mig_manager() -> None:
    assert not [key for key in rendered({}) if "vgpu" in key[1]]
    config = {"name": "my-vgpus", "default": "A2-4Q"}
    found = rendered(
        {
            "besideOperator": True,
            "vgpuDeviceManager": {"enabled": True, "config": config},
            "settings": {"mig": {"enabled": False}},
        }
    )
    (pod,) = (
        item["spec"]["template"]["spec"]
        for key, item in found.items()
        if key[1] == "aliquot-vgpus" and "Daemon" in key[0]
    )
    assert pod["nodeSelector"][names.VGPU_DEPLOY_LABEL] == "true"
    assert {"name": "DEFAULT_VGPU_CONFIG", "value": "A2-4Q"} in pod["containers"][0]["env"]
    assert ("NetworkPolicy", "aliquot-vgpus", "gpu-operator") in found
    merged = messages(found)
    assert (merged.manage, merged.vgpu_manage, merged.vgpu_config_map) == (False, True, "my-vgpus")
    assert merged.default_config == "all-disabled", "a setting beside another keeps its value"


def test_the_extender_has_its_rights_its_port_and_a_certificate_if_there_is_one() -> None:
    assert not [key for key in rendered({}) if "extender" in key[1]]
    found = rendered({"dra": {"extender": {"enabled": True, "score": "first-fit"}}})
    assert found["ConfigMap", "aliquot-extender", "gpu-operator"]["data"] == {
        "port": "8444",
        "score": "first-fit",
        "cert-dir": "",
    }
    kinds = {key[0] for key in found if "extender" in key[1]}
    assert kinds == {"ClusterRole", "ClusterRoleBinding", "ConfigMap", "Service", "NetworkPolicy"}
    pod = found["Deployment", "aliquot-controller", "gpu-operator"]["spec"]["template"]["spec"]
    assert "volumes" not in pod
    given = {"dra": {"extender": {"enabled": True, "tlsSecret": "mine"}}}
    both = {"devices": {"enabled": True}, "webhook": {"certManager": {"enabled": True}}}
    for values, secrets in ((given, ["mine"]), (given | both, ["aliquot-webhook-cert-manager", "mine"])):
        found = rendered(values)
        pod = found["Deployment", "aliquot-controller", "gpu-operator"]["spec"]["template"]["spec"]
        assert [each["secret"]["secretName"] for each in pod["volumes"]] == secrets
        paths = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
        assert found["ConfigMap", "aliquot-extender", "gpu-operator"]["data"]["cert-dir"] in paths
    closed = rendered({"networkPolicy": {"enabled": False}, "dra": {"extender": {"enabled": True}}})
    assert not [key for key in closed if key[0] == "NetworkPolicy"]


@pytest.mark.parametrize("allocation", ["plugin", "dra"])
@pytest.mark.parametrize("label", [None, "plugin", "dra", "unknown"])
def test_each_node_has_one_of_the_two_agents(allocation: str, label: str | None) -> None:
    found = rendered({"allocation": allocation, "dra": {"enabled": True}})
    agents = {
        name: found["DaemonSet", name, "gpu-operator"]["spec"]["template"]["spec"]
        for name in ("nvidia-mig-manager", "aliquot-claims")
    }
    chosen = [name for name, pod in agents.items() if _selected(pod, label)]
    wanted = {"plugin": "nvidia-mig-manager", "dra": "aliquot-claims"}
    # An unknown value is as no value.
    assert chosen == [wanted.get(label or "", wanted[allocation])]
    assert agents["nvidia-mig-manager"]["nodeSelector"] == agents["aliquot-claims"]["nodeSelector"]


def _selected(pod: dict[str, Any], label: str | None) -> bool:
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((expression,),) = [term["matchExpressions"] for term in required["nodeSelectorTerms"]]
    assert expression["key"] == "aliquot.dev/allocation"
    return bool((label in expression["values"]) == (expression["operator"] == "In"))


def test_the_driver_of_claims_is_set_by_values() -> None:
    values = {"driver": "gpu.nvidia.com", "score": "first-fit", "modeChanges": "any"}
    pod = rendered({"allocation": "dra", "dra": values})["DaemonSet", "aliquot-claims", "gpu-operator"]
    variables = {each["name"]: each.get("value") for each in pod["spec"]["template"]["spec"]["containers"][0]["env"]}
    assert {f"DRA_{name}": variables[f"DRA_{name}"] for name in ("DRIVER", "SCORE", "MODE_CHANGES")} == {
        "DRA_DRIVER": "gpu.nvidia.com",
        "DRA_SCORE": "first-fit",
        "DRA_MODE_CHANGES": "any",
    }
    for wrong in ({"allocation": "both"}, {"dra": {"score": "best"}}, {"migManager": {"claims": True}}):
        with pytest.raises(HelmValuesError):
            helm(wrong)


def test_evictions_are_off_until_a_value_allows_them() -> None:
    def may_evict(found: Objects) -> list[str]:
        return [key[1] for key, item in found.items() if "pods/eviction" in str(item.get("rules", ""))]

    assert may_evict(rendered({})) == []
    found = rendered({"migManager": {"evictions": True}})
    assert may_evict(found) == ["aliquot-agent-evictions"]
    assert found["ClusterRoleBinding", "aliquot-agent-evictions", ""]["subjects"][0]["name"] == "aliquot-agent"


@pytest.mark.parametrize("beside", [True, False])
def test_beside_pcidevices_its_add_on_leaves_nodes_out(beside: bool) -> None:
    # The add-on's HelmChart is in Harvester's namespace, whatever ours is.
    found = rendered({"devices": {"enabled": True, "besidePcidevices": beside}}, "vms")
    configs = {key: value for key, value in found.items() if key[0] == "HelmChartConfig"}
    wanted = pcidevices_addon.chart_config() if beside else None
    assert configs == ({("HelmChartConfig", "pcidevices-controller", "harvester-system"): wanted} if wanted else {})
