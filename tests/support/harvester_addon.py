"""A model of what decides where Harvester's pcidevices runs: its Addon, the Addon's webhook, Helm, and its DaemonSet.

Facts are from these sources, which were read, not copied:

- harvester v1.9.0-rc6, ``pkg/controller/master/addon``: an enabled Addon has a HelmChart of its name. Each difference
  of version or values is written into it. A disabled Addon's HelmChart is deleted, and Helm uninstalls.
- harvester v1.9.0-rc6, ``pkg/webhook/resources/addon/validator.go``: no change while an operation is in progress; no
  disabling while a VM, even a stopped one, has hostDevices, unless the Addon has the annotation ``SKIP``.
- harvester v1.9.0-rc6, ``package/upgrade/lib.sh`` (upgrade_addon): a merge patch of ``spec.version`` and
  ``spec.valuesContent``, with the values of the release.
- helm-controller v0.17.7, ``pkg/controllers/chart/chart.go`` (valuesSecretAddConfig) and klipper-helm: the values of a
  HelmChartConfig with the chart's name and namespace follow the HelmChart's, so they win.
- harvester/charts, harvester-pcidevices-controller: the DaemonSet has nodeSelector and affinity only from values.
- Helm keeps what another client added to an object until the object is uninstalled.
- harvester-ui-extension v1.9.0-rc4: a page is drawn while both Addons are enabled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

JSON = dict[str, Any]
NAMESPACE, ADDON, DRIVER_ADDON = "harvester-system", "pcidevices-controller", "nvidia-driver-toolkit"
DAEMON_SET = "harvester-pcidevices-controller"
SKIP = "harvesterhci.io/skipPCIDevicesControllerAddonWebhookCheck"
GPU_PAGES = ("sriovgpudevices", "vgpudevices", "migconfigurations")


class RefusedError(Exception):
    """The Addon's webhook refused a change."""


def shipped_values(release: str) -> str:
    """Return the values with which a release of Harvester ships the Addon."""
    return yaml.safe_dump({"image": {"tag": release}, "fullnameOverride": DAEMON_SET})


@dataclass
class Addon:
    """The object of kind Addon. ``spec.enabled`` is what the pages look at."""

    enabled: bool = False
    version: str = "1.8.0"
    values: str = field(default_factory=lambda: shipped_values("v1.8.0"))
    annotations: dict[str, str] = field(default_factory=dict)
    in_progress: bool = False


@dataclass
class Harvester:
    """A cluster as far as it decides where pcidevices runs. ``settle`` runs all controllers until nothing changes."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Labels by node."""
    vms: dict[str, int] = field(default_factory=dict)
    """The number of hostDevices by VM, running or not."""
    configs: dict[tuple[str, str], JSON] = field(default_factory=dict)
    """HelmChartConfigs by namespace and name."""
    addon: Addon = field(default_factory=Addon)
    driver_enabled: bool = True
    pod_spec: JSON | None = None
    """Of the DaemonSet; None while it is not installed."""
    by_hand: JSON = field(default_factory=dict)
    """What a user patched into the DaemonSet's pods. Helm keeps it until it uninstalls."""
    pods: set[str] = field(default_factory=set)
    """The nodes that have a pod of pcidevices."""

    # -- what people and upgrades do

    def enable(self) -> None:
        self._admit()
        self.addon.enabled, self.addon.in_progress = True, True

    def disable(self) -> None:
        """Disable the Addon. Raise RefusedError as its webhook does."""
        self._admit()
        users = sorted(name for name, count in self.vms.items() if count)
        if self.addon.enabled and users and self.addon.annotations.get(SKIP) != "true":
            raise RefusedError(f"the following VMs are using passthrough devices: {users}")
        self.addon.enabled, self.addon.in_progress = False, True

    def edit_values(self, values: str) -> None:
        """Write the Addon's values, as its page does."""
        self._admit()
        self.addon.values, self.addon.in_progress = values, True

    def upgrade(self, release: str) -> None:
        """Patch the Addon as the upgrade of Harvester does: its version and values, and nothing else."""
        self._admit()
        self.addon.version, self.addon.values = release.lstrip("v"), shipped_values(release)
        self.addon.in_progress = True

    def patch_daemon_set(self, spec: JSON) -> None:
        """Patch the pods of the DaemonSet by hand."""
        assert self.pod_spec is not None
        self.by_hand = spec

    def apply(self, config: JSON) -> None:
        """Create a HelmChartConfig."""
        assert (config["apiVersion"], config["kind"]) == ("helm.cattle.io/v1", "HelmChartConfig")
        self.configs[config["metadata"]["namespace"], config["metadata"]["name"]] = config

    def _admit(self) -> None:
        if self.addon.in_progress:
            raise RefusedError("an existing operation is in progress")

    # -- what controllers do

    def settle(self) -> None:
        """Run the Addon's controller, Helm, and the DaemonSet's controller."""
        if self.addon.enabled:
            self.pod_spec = self._rendered()
        else:
            self.pod_spec, self.by_hand = None, {}
        self.addon.in_progress = False
        wanted = overlay(self.pod_spec, self.by_hand) if self.pod_spec is not None else None
        self.pods = {name for name, labels in self.nodes.items() if wanted is not None and fits(wanted, labels)}

    def _rendered(self) -> JSON:
        """Return the part of the pods' spec that Helm renders from the values."""
        values: JSON = {"nodeSelector": {}, "affinity": {}}  # the chart's defaults
        texts = [self.addon.values]
        config = self.configs.get((NAMESPACE, ADDON))
        if config is not None:
            texts.append(config["spec"]["valuesContent"])
        for text in texts:
            values = overlay(values, yaml.safe_load(text) or {})
        return {name: values[name] for name in ("nodeSelector", "affinity") if values[name]}

    # -- what people see

    def pages(self) -> tuple[str, ...]:
        """Return the GPU pages that are drawn; the others are a banner."""
        return GPU_PAGES if self.addon.enabled and self.driver_enabled else ()


def overlay(below: JSON, above: Mapping[str, Any]) -> JSON:
    """Merge values as Helm does: maps key by key, anything else is replaced."""
    merged = dict(below)
    for key, value in above.items():
        deep = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = overlay(merged[key], value) if deep else value
    return merged


def fits(spec: JSON, labels: Mapping[str, str]) -> bool:
    """Report whether a DaemonSet's pod belongs on a node with these labels. Added labels evict such a pod."""
    if any(labels.get(key) != value for key, value in spec.get("nodeSelector", {}).items()):
        return False
    required = spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or any(_meets(t["matchExpressions"], labels) for t in required["nodeSelectorTerms"])


def _meets(expressions: Iterable[JSON], labels: Mapping[str, str]) -> bool:
    return all(_holds(each["operator"], labels.get(each["key"]), tuple(each.get("values", ()))) for each in expressions)


def _holds(operator: str, value: str | None, values: tuple[str | None, ...]) -> bool:
    match operator:
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "In":
            return value in values
        case "NotIn":
            return value not in values
    raise ValueError(f"no operator {operator}")
