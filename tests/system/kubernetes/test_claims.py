"""Devices that pods have by ResourceClaims. The DRA driver is simulated; the kubelet's protocol is real."""

from __future__ import annotations

from aliquot.kubernetes.gpu import names
from support.agents import Agent
from support.nodedouble import NodeDouble
from system.kubelet.kubeletdouble import Claimed, Container, Pod
from system.kubernetes.test_pods import kubelet_root, node

__all__ = ["kubelet_root", "node"]


def _claims(node: NodeDouble, agent: Agent, name: str, *claimed: Claimed) -> Pod:
    """Create a pod for which a simulated DRA driver has prepared devices."""
    agent.create(
        "pods",
        {"metadata": {"name": name}, "spec": {"nodeName": agent.name, "containers": [{"name": "main", "image": "x"}]}},
        "default",
    )
    made = Pod(name, (Container("main", claimed=claimed),), uid="played")
    node.kubelet.pods[made.uid] = made
    return made


def test_what_a_pod_has_by_a_claim_is_held(node: tuple[Agent, NodeDouble]) -> None:
    # The instance that the claim names is kept, and so is everything if the driver's names identify nothing.
    agent, double = node
    last = next(i for i in agent.sim.show()["gpus"][0]["instances"] if i["placement"].startswith("6"))
    uuid = last["compute_instances"][0]["uuid"]
    claimed = Claimed("part", "x", cdi=(f"k8s.gpu.nvidia.com/claim=1-{uuid}",))
    pod = _claims(double, agent, "train", claimed)
    reported = agent.request("all-7g.40gb", "failed", "Held")
    assert "default/train (main, claim default/part of driver gpu.nvidia.com)" in reported["message"]
    assert len(agent.geometry()[0]) == 7

    agent.request("all-1g.5gb")
    double.kubelet.pods[pod.uid] = Pod("train", (Container("main", claimed=(Claimed("odd", "x"),)),), uid="played")
    reported = agent.request("all-7g.40gb", "failed", "Held")
    assert "default/train (main, claim default/odd of driver gpu.nvidia.com, whose device 'x' identifies no GPU" in str(
        reported
    )
    assert len(agent.geometry()[0]) == 7

    del double.kubelet.pods[pod.uid]
    agent.cluster.request("DELETE", "/api/v1/namespaces/default/pods/train?gracePeriodSeconds=0")
    agent.patch({"metadata": {"annotations": {names.STATUS_ANNOTATION: None}}})
    agent.reaches("success", "all-7g.40gb")
