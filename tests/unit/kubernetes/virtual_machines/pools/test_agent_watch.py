"""Pools while agents are dead: they use other nodes, say whose agent is missing, and have no more when it is back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from aliquot.kubernetes.virtual_machines.pools.agent_watch import ANSWER_S, AgentWatch
from unit.kubernetes.virtual_machines.pools.pool_cluster import EIGHT_Q, FOUR_Q, Cluster


def test_a_pool_goes_on_to_another_node_when_an_agent_does_not_answer(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.dead = {"n1"}
    cluster.pool("desk", count=3)
    cluster.settle()
    assert cluster.types() == {}
    assert cluster.ready("desk") == ("False", "Pending")
    cluster.wait()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 3})}
    assert cluster.ready("desk") == ("True", "Configured")
    cluster.dead.clear()
    cluster.settle()
    assert cluster.types() == {"n2": Counter({FOUR_Q: 3})}


def test_a_pool_without_another_place_names_the_agent_and_keeps_its_request(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev*2", n2="a2:mdev")
    cluster.pool("desk", count=1, nodeName="n1")
    cluster.settle()
    cluster.dead = {"n1"}
    cluster.pools["desk"]["spec"]["count"] = 3
    cluster.settle()
    cluster.wait()
    assert cluster.ready("desk") == ("False", "Insufficient")
    message = cluster.message("desk")
    assert "1 of 3 vGPUs of type NVIDIA A2-4Q fit: the agent of node n1 does not answer" in message
    assert message.endswith(
        "| next: kubectl get pods -A -l app=aliquot-devices -o wide --field-selector spec.nodeName=n1"
    )
    cluster.dead.clear()
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 3})}
    assert cluster.ready("desk") == ("True", "Configured")


def test_what_exists_on_a_silent_node_stays_and_counts(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    before = cluster.devices("desk")
    cluster.dead = {"n1"}
    cluster.pools["desk"]["spec"]["count"] = 4
    cluster.settle()
    cluster.wait()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2}), "n2": Counter({FOUR_Q: 2})}
    assert set(before) < set(cluster.devices("desk"))
    cluster.dead.clear()
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 2}), "n2": Counter({FOUR_Q: 2})}


def test_an_agent_that_made_the_vgpus_before_it_died_makes_no_surplus(tmp_path: Path) -> None:
    # It saw the request and reported nothing more. With the vGPUs elsewhere there are too many when it is back.
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    cluster.dead = {"n1"}
    cluster.pools["desk"]["spec"]["count"] = 4
    cluster.decide()
    cluster.nodes["n1"].publish()
    cluster.nodes["n1"].act()
    cluster.settle()
    cluster.wait()
    assert cluster.types()["n2"] == Counter({FOUR_Q: 2})
    cluster.dead.clear()
    cluster.settle()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 4})}
    assert cluster.ready("desk") == ("True", "Configured")


def test_an_agent_that_dies_after_it_saw_the_request_is_no_longer_waited_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=1)
    cluster.settle()
    cluster.dead = {"n1"}
    cluster.pools["desk"]["spec"]["count"] = 2
    cluster.decide()
    cluster.nodes["n1"].publish()
    cluster.settle()
    cluster.wait()
    assert cluster.types() == {"n1": Counter({FOUR_Q: 1}), "n2": Counter({FOUR_Q: 1})}


@pytest.mark.parametrize("vm", [False, True])
def test_the_request_of_a_vm_stays_and_another_vgpu_goes_later(tmp_path: Path, vm: bool) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev", n2="a2:mdev")
    cluster.pool("desk", count=1)
    cluster.settle()
    cluster.dead = {"n1"}
    cluster.pools["desk"]["spec"]["count"] = 3
    cluster.settle()
    new = next(name for name in cluster.devices("desk") if not cluster.device(name)["status"].get("uuid"))
    if vm:
        cluster.run_vm(new)
    cluster.wait()
    assert cluster.types()["n2"] == Counter({FOUR_Q: 2})
    assert cluster.device(new)["spec"]["enabled"] == vm
    cluster.dead.clear()
    cluster.settle()
    assert sum(map(Counter.total, cluster.types().values())) == 3
    assert not vm or new in cluster.devices("desk")
    assert cluster.ready("desk") == ("True", "Configured")


def test_a_slow_agent_that_answers_something_is_waited_for(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, n1="a2:mdev")
    cluster.pool("desk", count=2)
    cluster.settle()
    cluster.dead = {"n1"}
    cluster.pools["desk"]["spec"]["vGPUTypeName"] = EIGHT_Q
    cluster.decide()
    watch, snapshot = AgentWatch(), cluster.snapshot()
    assert watch.silent_nodes(snapshot, 0) == frozenset()
    assert watch.silent_nodes(snapshot, ANSWER_S - 1) == frozenset()
    cluster.nodes["n1"].store.apply(next(iter(cluster.answers("n1"))))
    partly = cluster.snapshot()
    assert watch.silent_nodes(partly, ANSWER_S + 1) == frozenset()
    assert watch.silent_nodes(partly, 2 * ANSWER_S + 2) == {"n1"}
    cluster.nodes["n1"].settle()
    assert watch.silent_nodes(cluster.snapshot(), 3 * ANSWER_S) == frozenset()
