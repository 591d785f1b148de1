"""The first steps after an installation: the agent as its DaemonSet starts it, with only the default settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agents import Agent
from support.cluster import Cluster
from support.deployed import objects


@pytest.fixture
def agent(cluster: Cluster, tmp_path: Path) -> Iterator[Agent]:
    made = Agent(cluster, tmp_path, "gpu-1", "h100-80gb-hbm3*2")
    made.start()
    yield made
    made.close()


def test_the_first_label_of_a_fresh_installation(agent: Agent) -> None:
    # One profile fits as it is, several need another strategy, and the refusal names it: as documented on the pages.
    assert agent.request("all-1g.10gb")["reason"] == "Applied"
    assert agent.labels()["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"

    refused = agent.request("all-balanced", "failed", "LabelsWouldBeInvalid")
    assert refused["nextStep"].endswith("mig: {strategy: mixed}")
    assert agent.labels()["nvidia.com/gpu.product"] == "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"

    agent.settings("mig: {strategy: mixed}")
    agent.reaches("success", "all-balanced")
    assert agent.labels()["nvidia.com/mig-3g.40gb.count"] == "2"


def test_it_has_the_token_of_its_pod_and_what_is_mounted(agent: Agent) -> None:
    (pod,) = objects("kubernetes/30-agent.yaml")
    agent.until(lambda: agent.labels().get("nvidia.com/mig.strategy"), "the first labels")
    (variable,) = (
        each["value"]
        for each in pod["spec"]["template"]["spec"]["containers"][0]["env"]
        if each["name"] == "MIG_STRATEGY"
    )
    assert agent.labels()["nvidia.com/mig.strategy"] == variable
    path = "/api/v1/namespaces/gpu-operator/configmaps/gpu-1-mig-config"
    agent.until(lambda: agent.cluster.request("GET", path).status == 200, "the generated configs")
    made = agent.call("GET", path)
    assert made["metadata"]["ownerReferences"][0]["name"] == agent.deployed.name
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    token = agent.deployed.token(agent.cluster)
    who = agent.cluster.request("POST", path, body, token=token).body["status"]["userInfo"]
    assert who["username"] == "system:serviceaccount:gpu-operator:aliquot-agent"
    assert who["extra"]["authentication.kubernetes.io/node-name"] == ["gpu-1"]
    reported = agent.request("all-1g.5gb", "failed")  # a name of the mounted file, for other GPUs
    assert "all-1g.5gb" in reported["message"]
