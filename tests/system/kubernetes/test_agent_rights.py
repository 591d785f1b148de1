"""The real agent with the rights of its manifests and a token as the kubelet mounts it: enough for a whole change."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.kubernetes.gpu import names
from support.agents import MakeAgent
from support.cluster import Cluster
from support.standin.kubeconfig import kubeconfig
from system.kubernetes.agent_rights import AGENT, MAPS, NS, Environment
from system.kubernetes.api_user import ApiUser
from system.kubernetes.refusals import AGENT_MAY_NOT, DRY

VALIDATOR = {"app": "nvidia-operator-validator"}


def test_a_change_needs_no_right_that_is_not_in_the_table(
    cluster: Cluster, make_agent: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = Environment(cluster)
    environment.mark()
    agent = make_agent("a100-sxm4-40gb")
    environment.pod("agent-pod", agent.name, NS, AGENT)
    token = environment.token(AGENT, "agent-pod")
    file = tmp_path / "bound-kubeconfig"
    file.write_text(kubeconfig(cluster.url, token, ca=str(cluster.ca), namespace=NS, user=AGENT))
    monkeypatch.setattr(cluster, "kubeconfig", lambda *_, **__: file)
    cluster.wait(
        lambda: all(a(environment, AGENT, DRY).status == 403 for a in AGENT_MAY_NOT if a.words), "the policies"
    )
    validator = environment.pod("validator", agent.name, NS)
    environment.admin.must("PATCH", validator, {"metadata": {"labels": VALIDATOR}})
    agent.environment["POD_NAME"] = "agent-pod"

    agent.start()
    agent.request("all-1g.5gb")
    assert agent.geometry() == [[f"1g.5gb@{n}" for n in range(7)]]
    assert set(agent.deploy().values()) == {"true"}
    assert agent.labels()["nvidia.com/mig-1g.5gb.count"] == "7"
    assert [event["reason"] for event in agent.events()]
    made = cluster.get(f"{MAPS}/{agent.name}-mig-config")
    assert made["metadata"]["ownerReferences"][0]["name"] == "agent-pod"
    gone = ApiUser(cluster, cluster.token).ask("GET", validator)
    assert gone.status == 404 or gone.body["metadata"].get("deletionTimestamp")

    agent.request("all-1g.5bg", "failed")
    agent.request("all-disabled")
    assert agent.geometry() == [[]]
    assert agent.labels().get(names.CONFIG_LABEL) == "all-disabled"
    for refusal in ("forbidden", "lacks permission", "denied request"):
        assert refusal not in agent.log()
    environment.close()
