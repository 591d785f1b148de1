"""The agent's limits: what it leaves alone, and its reports for nodes without GPUs."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

import pytest

from aliquot.kubernetes.gpu import names
from support.agents import DEPLOY, Agent, MakeAgent

SEVEN = [f"1g.5gb@{n}" for n in range(7)]


def test_a_gpu_with_an_enabled_sriovgpudevice_is_left_alone(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb*2")
    second = agent.sim.show()["gpus"][1]["pci"]
    agent.patch({"metadata": {"annotations": {names.RESERVED_ANNOTATION: second}}})
    agent.start()
    agent.request("all-1g.5gb")
    assert agent.geometry() == [SEVEN, []]
    assert agent.sim.show()["gpus"][1]["mig"]["current"] == "disabled"


def test_and_when_it_is_given_back_the_request_reaches_it(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    pci = agent.sim.show()["gpus"][0]["pci"]
    agent.patch({"metadata": {"annotations": {names.RESERVED_ANNOTATION: pci}}})
    agent.start()
    reported = agent.request("all-1g.5gb", "failed", "Reserved")
    assert pci in reported["message"]
    assert agent.writes() == []
    agent.patch({"metadata": {"annotations": {names.RESERVED_ANNOTATION: None}}})
    agent.reaches("success", "all-1g.5gb")
    assert agent.geometry() == [SEVEN]


def test_a_node_without_mig_says_so_and_is_labelled_so(make_agent: MakeAgent) -> None:
    agent = make_agent("tesla-t4")
    agent.start()
    agent.label(config="all-1g.5gb")
    agent.until(lambda: agent.status().get("state") == "failed", "failed")
    assert agent.labels()["nvidia.com/mig.capable"] == "false"
    assert agent.deploy() == DEPLOY


@pytest.mark.parametrize("template", ["a30,h100-80gb-hbm3", "a100-sxm4-40gb,tesla-t4"])
def test_a_mixed_node_gets_balanced_and_keyed_labels(make_agent: MakeAgent, template: str) -> None:
    agent = make_agent(template)
    agent.start()
    agent.request("all-balanced")
    keyed = [name for name in agent.labels() if ".aliquot.dev/gpu.count" in name]
    assert len(keyed) == 2
    before = agent.writes()
    agent.stop()
    agent.start()
    agent.until(lambda: agent.log().count("health and metrics on port") == 2, "the second agent")
    agent.reaches("success", "all-balanced")
    assert agent.writes() == before


def test_a_missing_driver_is_reported_and_the_driver_that_comes_is_noticed(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {strategy: mixed}\ntimes: {check-seconds: 5}")
    agent.environment["ALIQUOT_BACKEND"] = "shim"
    library = hide(agent)
    agent.start()
    try:
        reported = agent.request("all-1g.5gb", "failed")
        assert reported["reason"] in ("NoDriver", "GpusUnreadable")
        assert agent.deploy() == DEPLOY
    finally:
        library.with_name("libnvidia-ml.so.1").rmdir()
        library.rename(library.with_name("libnvidia-ml.so.1"))
    agent.reaches("success", "all-1g.5gb")


def hide(agent: Agent) -> Path:
    """Rename the node's library, so that it cannot be loaded."""
    from aliquot.sim import lifecycle as control

    found = Path(control.library(agent.state, "machine"))
    unavailable = found.with_name("hidden")
    found.rename(unavailable)
    found.mkdir()
    return unavailable


def test_probes_and_metrics(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.request("all-1g.5gb")
    port = agent.log().split("health and metrics on port ")[1].split('"')[0]
    pages = {}
    for page in ("healthz", "readyz", "metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}") as answer:
            pages[page] = answer.read().decode()
    assert pages["healthz"] == pages["readyz"] == "ok\n"
    assert f'aliquot_agent_state{{node="{agent.name}",state="success"}} 1.0' in pages["metrics"]
    assert 'aliquot_agent_applies_total{node="node-0",outcome="done"} 1.0' in pages["metrics"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/other")
    assert refused.value.code == 404
    refused.value.close()
