"""Harvester's controllers of its Addons, and pcidevices' pods, played on a cluster after ``support.harvester_addon``.

The Addon, the HelmChartConfig, nodes and VMs are objects of the API server. ``settle`` reads them, lets the model
decide where pcidevices runs, and starts and ends its pods. A pod that starts writes pcidevices' definitions over ours.
"""

from __future__ import annotations

import copy
from typing import Any

from aliquot.kubernetes.virtual_machines.controller.definition_repair import REPAIRED
from aliquot.kubernetes.virtual_machines.harvester import crd_manifests as crds
from aliquot.kubernetes.virtual_machines.harvester.crd_merge import missing_parts
from support.harvester_addon import ADDON, DAEMON_SET, DRIVER_ADDON, NAMESPACE, Addon, Harvester, shipped_values
from system.harvester.samples import ADDITIONS
from system.harvester.site import Site

JSON = dict[str, Any]
ADDONS = f"/apis/harvesterhci.io/v1beta1/namespaces/{NAMESPACE}/addons"
CONFIGS = f"/apis/helm.cattle.io/v1/namespaces/{NAMESPACE}/helmchartconfigs"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"


class AddonCluster:
    """A site on Harvester, whose two Addons are enabled."""

    def __init__(self, site: Site) -> None:
        self.site, self.model = site, Harvester(addon=Addon(enabled=True))
        site.cluster.apply(_definition("harvesterhci.io", "v1beta1", "Addon"))
        site.cluster.apply(_definition("helm.cattle.io", "v1", "HelmChartConfig"))
        site.cluster.namespace(NAMESPACE)
        for path in (ADDONS, CONFIGS):
            site.cluster.wait(lambda: site.cluster.request("GET", path).status == 200, path, 30)  # noqa: B023 -- called at once
        for name in (ADDON, DRIVER_ADDON):
            body = {"apiVersion": "harvesterhci.io/v1beta1", "kind": "Addon", "metadata": {"name": name}}
            spec = {"enabled": True, "version": "1.8.0", "valuesContent": shipped_values("v1.8.0")}
            site.cluster.must("POST", ADDONS, {**body, "spec": spec})

    # -- what people and upgrades do

    def enable(self, enabled: bool) -> None:
        """Set ``spec.enabled`` of the Addon. Raise RefusedError as Harvester's webhook does."""
        self._read()
        if enabled:
            self.model.enable()
        else:
            self.model.disable()
        self._write({"enabled": enabled})

    def upgrade(self, release: str) -> None:
        """Run the part of Harvester's upgrade that concerns the Addon."""
        self._read()
        self.model.upgrade(release)
        self._write({"version": self.model.addon.version, "valuesContent": self.model.addon.values})

    def label(self, node: str, labeled: bool) -> None:
        self.site.kubectl("label", "node", node, f"aliquot.dev/without-pcidevices{'=true' if labeled else '-'}")
        self.settle()

    def pages(self) -> tuple[str, ...]:
        """Return the GPU pages that Harvester draws."""
        self._read()
        return self.model.pages()

    # -- what controllers do

    def settle(self) -> None:
        """Run the controllers, then start and end pods."""
        self._read()
        before = set(self.model.pods)
        self.model.settle()
        for node in sorted(before - self.model.pods):
            self.site.cluster.must("DELETE", f"{PODS}/{DAEMON_SET}-{node}?gracePeriodSeconds=0")
        for node in sorted(self.model.pods - before):
            self._start(node)

    def _start(self, node: str) -> None:
        labels = {"app.kubernetes.io/name": DAEMON_SET}
        spec = {"nodeName": node, "containers": [{"name": "agent", "image": "pcidevices"}]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"{DAEMON_SET}-{node}", "labels": labels}}
        self.site.cluster.must("POST", PODS, {**pod, "spec": spec})
        for each in crds.definitions():
            path = f"{DEFINITIONS}/{each['metadata']['name']}"
            self.site.cluster.must("PATCH", path, {"spec": {"versions": _without_ours(each)["spec"]["versions"]}})

    def lacking(self) -> dict[str, tuple[str, ...]]:
        """Return what each definition in the cluster lacks of ours."""
        names = {each["metadata"]["name"]: each for each in crds.definitions()}
        found = {name: missing_parts(self.site.cluster.get(f"{DEFINITIONS}/{name}"), names[name]) for name in names}
        return {name: missing for name, missing in found.items() if missing}

    def repairs(self) -> set[str]:
        """Return the definitions that our controller has repaired."""
        events = self.site.cluster.get("/api/v1/namespaces/default/events")["items"]
        return {each["involvedObject"]["name"] for each in events if each["reason"] == REPAIRED}

    def _read(self) -> None:
        """Read from the API server what people and other controllers wrote."""
        get, model = self.site.cluster.get, self.model
        for each in get(ADDONS)["items"]:
            if each["metadata"]["name"] == ADDON:
                spec, meta = each["spec"], each["metadata"]
                model.addon.enabled, model.addon.version = spec["enabled"], spec["version"]
                model.addon.values, model.addon.annotations = spec["valuesContent"], meta.get("annotations", {})
            else:
                model.driver_enabled = each["spec"]["enabled"]
        model.configs = {(NAMESPACE, each["metadata"]["name"]): each for each in get(CONFIGS)["items"]}
        model.nodes = {n["metadata"]["name"]: n["metadata"].get("labels", {}) for n in get("/api/v1/nodes")["items"]}
        vms = get("/apis/kubevirt.io/v1/virtualmachines")["items"]
        model.vms = {vm["metadata"]["name"]: len(_devices(vm).get("hostDevices", ())) for vm in vms}

    def _write(self, spec: JSON) -> None:
        self.site.cluster.must("PATCH", f"{ADDONS}/{ADDON}", {"spec": spec})
        self.settle()


def _devices(vm: JSON) -> JSON:
    found: JSON = vm["spec"]["template"]["spec"]["domain"]["devices"]
    return found


def _definition(group: str, version: str, kind: str) -> JSON:
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": versions},
    }


def _without_ours(definition: JSON) -> JSON:
    """Return pcidevices' definition of a kind: without our fields, and without rules and limits."""
    body = copy.deepcopy(definition)
    for version in body["spec"]["versions"]:
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        status.pop("x-kubernetes-preserve-unknown-fields", None)
        for name in ADDITIONS:
            status["properties"].pop(name, None)
    return body
