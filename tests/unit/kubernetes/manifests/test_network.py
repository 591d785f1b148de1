"""Network access to the pods, by the NetworkPolicies of each folder."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.manifests import bundle
from aliquot.kubernetes.manifests.values import Values, beside_operator

FOLDERS = {
    "containers": bundle.files(Values()),
    "beside the operator": bundle.files(beside_operator()),
    "machines": bundle.vm_files(Values()),
}
MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}


def reach(policies: list[Any], template: Any) -> dict[str, Any]:
    """Return the access for each port of a pod's container: all (True), none (False), or the allowed peers.

    The rules of several policies for a pod add up.
    """
    labels = template["metadata"]["labels"]
    chosen = [p["spec"] for p in policies if p["spec"]["podSelector"]["matchLabels"].items() <= labels.items()]
    assert [spec["policyTypes"] for spec in chosen] in ([["Ingress"]], [["Ingress"]] * 2)
    names = [port["name"] for container in template["spec"]["containers"] for port in container["ports"]]
    found: dict[str, Any] = dict.fromkeys(names, False)
    for rule in (rule for spec in chosen for rule in spec["ingress"]):
        for port in rule["ports"]:
            assert port["port"] in names, "a rule for a port that no container has"
            found[port["port"]] = rule.get("from", True)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_metrics_are_for_prometheus_and_webhooks_for_the_api_server(folder: str) -> None:
    objects = [item for items in FOLDERS[folder].values() for item in items]
    policies = [item for item in objects if item["kind"] == "NetworkPolicy"]
    pods = {i["metadata"]["name"]: i["spec"]["template"] for i in objects if i["kind"] in ("DaemonSet", "Deployment")}
    assert len(pods) == len(policies) - 1 == (3 if "aliquot-devices" in pods else 5)
    for name, template in pods.items():
        # NetworkPolicies do not apply to a pod in the node's network.
        assert not template["spec"].get("hostNetwork"), name
        expected: dict[str, Any] = {"http": [MONITORING]}
        if name == "aliquot-controller":
            expected |= {"https": True, "extender": True}
        if name == "aliquot-dashboard":
            expected = {"http": False}
        assert reach(policies, template) == expected, name
