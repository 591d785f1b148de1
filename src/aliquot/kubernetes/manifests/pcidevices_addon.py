"""HelmChartConfig that keeps Harvester's pcidevices off the nodes that Aliquot serves, while its Addon stays enabled.

Harvester's pages need the Addon. Its upgrades rewrite the Addon's version and values, but no HelmChartConfig, whose
values Helm reads last.

Source: harvester, package/upgrade/lib.sh (upgrade_addon); helm-controller, pkg/controllers/chart/chart.go
(valuesSecretAddConfig); harvester/charts, harvester-pcidevices-controller (affinity).
"""

from __future__ import annotations

from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.kubernetes.kinds.harvester_names import WITHOUT_PCIDEVICES
from aliquot.kubernetes.manifests.values import HARVESTER, Object, metadata

ADDON = "pcidevices-controller"
"""The name of the Addon, and of the HelmChart that Harvester makes of it in its own namespace."""


def chart_config() -> Object:
    """Return the HelmChartConfig. It has the HelmChart's name and namespace, whatever namespace Aliquot is in."""
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node_terms()}}
    return {
        "apiVersion": "helm.cattle.io/v1",
        "kind": "HelmChartConfig",
        "metadata": metadata(ADDON, "devices", HARVESTER),
        "spec": {"valuesContent": to_yaml({"affinity": required})},
    }


def node_terms() -> Object:
    """Return the selector of nodes without our label."""
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": WITHOUT_PCIDEVICES, "operator": "DoesNotExist"}]}]}
