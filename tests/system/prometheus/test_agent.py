"""A real Prometheus scrapes a real agent: the metrics match the machine, and a failure becomes an alert."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import forkserver
from support.agents import Agent, MakeAgent
from system.prometheus.bed import RULES, Prometheus, check_metrics
from system.prometheus.conftest import MakePrometheus
from system.prometheus.exporter import Exporter

JSON = dict[str, Any]


def address(agent: Agent) -> str:
    agent.until(lambda: "health and metrics on port " in agent.log(), "the agent's port")
    return "127.0.0.1:" + agent.log().split("health and metrics on port ")[1].split('"')[0]


def page(agent: Agent, accept: str = "") -> bytes:
    asked = urllib.request.Request(f"http://{address(agent)}/metrics", headers={"Accept": accept} if accept else {})
    with urllib.request.urlopen(asked) as answer:
        return bytes(answer.read())


def shown(agent: Agent) -> JSON:
    """Return ``aliquot show -o json`` of that machine."""
    environment = {**os.environ, "ALIQUOT_STATE_DIR": agent.state, "ALIQUOT_SIM": "machine"}
    words = [sys.executable, "-m", "aliquot", "show", "-o", "json"]
    done = forkserver.run(words, env=environment, capture_output=True, check=True)
    found: JSON = json.loads(done.stdout)
    return found


def impatient(folder: Path, name: str) -> Path:
    """Write the delivered rules with one alert's delay cut to a second. Return the file."""
    rules = yaml.safe_load(RULES.read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if rule.get("alert") == name:
                rule["for"] = "1s"
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(rules))
    return path


@pytest.mark.slow
def test_what_prometheus_knows_is_what_the_machine_is(
    make_agent: MakeAgent, prometheus: MakePrometheus, tmp_path: Path
) -> None:
    agent = make_agent("a100-sxm4-40gb*2")
    agent.settings("times: {check-seconds: 5}\nmig: {self-heal: false}\n")
    agent.start()
    agent.request("all-1g.5gb")
    asked = prometheus({"aliquot": [address(agent)]}, impatient(tmp_path, "AliquotDrift"))
    asked.until(lambda: asked.value("sum(aliquot_instances)") == 14, "14 instances")
    _same(agent, asked)
    assert asked.value('aliquot_changes_total{outcome="done"}') == 1
    assert asked.value('aliquot_acts_total{act="create", profile="1g.5gb"}') == 14
    assert asked.value('aliquot_change_step_seconds_count{step="create"}') == 14
    steps = {labels["step"] for labels, _ in asked.query("aliquot_change_step_seconds_count")}
    assert {"plan", "lock", "read", "record", "set-mode", "create", "verify"} <= steps
    assert not asked.alerts("AliquotDrift")

    agent.sim.destroy(0, agent.sim.show()["gpus"][0]["instances"][0]["id"])
    asked.until(lambda: asked.value('aliquot_drift{kind="missing"}') == 1, "the drift")
    assert asked.value('aliquot_gpu_drift{gpu="0"}') == 1
    asked.until(lambda: [a for a in asked.alerts("AliquotDrift") if a["state"] == "firing"], "the alert")
    (alert,) = asked.alerts("AliquotDrift")
    assert alert["labels"]["Hostname"] == agent.name
    _same(agent, asked)


def _same(agent: Agent, asked: Prometheus) -> None:
    """Compare the counts by GPU, profile and state with those of the command line."""
    wanted = Counter(
        (gpu["uuid"], i["profile"], "held" if i["held"] else "idle")
        for gpu in shown(agent)["gpus"]
        for i in gpu["instances"]
    )

    def reported() -> Counter[tuple[str, str, str]]:
        rows = asked.query("aliquot_instances > 0")
        return Counter({(labels["UUID"], labels["profile"], labels["state"]): int(n) for labels, n in rows})

    asked.until(lambda: reported() == wanted, f"{wanted}")


@pytest.mark.slow
def test_both_forms_of_the_page_are_clean_and_join_with_dcgm_exporter(
    make_agent: MakeAgent, prometheus: MakePrometheus
) -> None:
    agent = make_agent("h100-80gb-hbm3")
    agent.start()
    agent.request("all-balanced")
    assert check_metrics(page(agent)) == ""
    modern = page(agent, "application/openmetrics-text;version=1.0.0")
    assert modern.endswith(b"# EOF\n")
    assert b"# TYPE aliquot_instance info" in modern
    with Exporter(agent.sim.show(), agent.name) as exporter:
        asked = prometheus({"aliquot": [address(agent)], "dcgm": [exporter.address]}, None)
        asked.until(lambda: asked.query("DCGM_FI_DEV_FB_USED") and asked.query("aliquot_instance_info"), "both pages")
        joined = asked.query(
            "DCGM_FI_DEV_FB_USED * on (UUID, GPU_I_ID) group_left (placement, mig_uuid) aliquot_instance_info"
        )
        machine = agent.sim.show()["gpus"][0]["instances"]
        assert {labels["placement"] for labels, _ in joined} == {i["placement"] for i in machine}
        assert all(labels["mig_uuid"].startswith("MIG-") for labels, _ in joined)
        assert sorted(value for _, value in joined) == sorted(100.0 + i["id"] for i in machine)
        idle = "DCGM_FI_PROF_GR_ENGINE_ACTIVE * on (UUID, GPU_I_ID) group_left () (aliquot_instance_held == bool 0)"
        assert len(asked.query(idle)) == len(machine)
        bus = "DCGM_FI_DEV_GPU_TEMP * on (UUID, pci_bus_id, device) group_left (family, confidence) aliquot_gpu_info"
        assert [labels["family"] for labels, _ in asked.query(bus)] == ["h100-80gb-sxm"]
