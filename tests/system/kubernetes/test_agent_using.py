"""The agent watches the use of instances: metrics for Prometheus, a document, and a record that lasts."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from aliquot.errors import UsageError
from aliquot.kubernetes.node_agent.usage_sampler import sampling_interval_s
from aliquot.node.usage_tracker import ALIVE, FILE
from support.agents import Agent, MakeAgent
from system.kubernetes.test_agent_shown import shown

EVERY = {"ALIQUOT_USAGE_SECONDS": "2"}


def record(agent: Agent) -> dict[str, Any]:
    """Return the record beside the journal, empty if there is none."""
    try:
        with open(os.path.join(agent.sim.directory, FILE)) as file:
            found: dict[str, Any] = json.load(file)["content"]
    except FileNotFoundError:
        return {}
    return found


def alive(agent: Agent) -> float:
    try:
        return os.stat(os.path.join(agent.sim.directory, ALIVE)).st_mtime
    except FileNotFoundError:
        return 0.0


@pytest.mark.slow
def test_what_is_used_is_watched_and_outlives_the_agent(make_agent: MakeAgent) -> None:
    agent = make_agent("h100-80gb-hbm3")
    agent.environment |= EVERY
    agent.settings("times: {check-seconds: 5}")
    agent.start()
    agent.request("all-3g.40gb")
    gi = agent.sim.show()["gpus"][0]["instances"][0]["id"]
    agent.sim.hold(0, gi, memory=9000, busy=0.5)
    agent.until(lambda: (d := shown(agent)) and any(u.peak_mib for u in d.usage), "the document tells of it")
    found = shown(agent)
    assert found is not None
    busy, idle = found.usage
    assert (busy.instance, busy.idle_since, busy.compute) == (gi, None, None), "roughly: shares are for Prometheus"
    assert 9000 <= (busy.peak_mib or 0) < 9000 + 40448 // 16
    assert idle.idle_since is not None
    agent.until(lambda: [p["instance"] for p in record(agent).get("pieces", [])], "a record")
    since = record(agent)["pieces"][0]["since"]
    agent.until(lambda: alive(agent) > since, "a later look", 90)
    agent.kill()
    agent.start()
    restarted = time.time()
    agent.until(lambda: alive(agent) > restarted, "a look of the next agent", 90)
    assert record(agent)["pieces"][0]["since"] == since
    agent.stop()


@pytest.mark.parametrize(("text", "seconds"), [("", 45.0), ("0", 0.0), ("2", 2.0), ("120", 120.0)])
def test_how_often(text: str, seconds: float) -> None:
    assert sampling_interval_s({"ALIQUOT_USAGE_SECONDS": text}) == seconds


@pytest.mark.parametrize("text", ["x", "nan", "-1", "1", "3600", "inf"])
def test_how_often_not(text: str) -> None:
    with pytest.raises(UsageError, match="use 2 to 120 seconds"):
        sampling_interval_s({"ALIQUOT_USAGE_SECONDS": text})
