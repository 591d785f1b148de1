"""Fixtures of these tests, which need Debian's package prometheus: it contains promtool."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agents import MIXED, NAMESPACE, Agent, MakeAgent
from support.cluster import StandinCluster
from system.prometheus.bed import MISSING, Prometheus

MakePrometheus = Callable[[Mapping[str, Sequence[str]], Path | None], Prometheus]


@pytest.fixture(autouse=True)
def _installed() -> None:
    if MISSING:
        pytest.skip(f"{MISSING}: apt-get install prometheus")


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[MakePrometheus]:
    """Start a Prometheus with jobs (name to addresses) and rules."""
    made: list[Prometheus] = []

    def make(targets: Mapping[str, Sequence[str]], rules: Path | None = None) -> Prometheus:
        made.append(Prometheus(tmp_path / f"prometheus-{len(made)}", targets, rules))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """Build nodes with simulated GPUs and real agents, on the stand-in of a cluster."""
    cluster = StandinCluster(tmp_path)
    cluster.namespace(NAMESPACE)
    made: list[Agent] = []

    def make(template: str, **more: Any) -> Agent:
        made.append(Agent(cluster, tmp_path, f"node-{len(made)}", template, **more))
        made[-1].environment |= MIXED
        return made[-1]

    yield make
    for agent in made:
        agent.close()
    cluster.close()
