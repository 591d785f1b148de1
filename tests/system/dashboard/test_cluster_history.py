"""The history of a cluster: the nodes' journals, and changes that only events report."""

from __future__ import annotations

from pathlib import Path

from aliquot.dashboard.cluster import history
from aliquot.dashboard.view_models import PastChange
from aliquot.hardware.state.journal import user
from support.agents import Agent, MakeAgent
from system.dashboard.clusterbed import Bed
from system.dashboard.clusterfixtures import cluster, make_agent, page, real_cluster, real_server, standin_cluster
from system.dashboard.program import aliquot

__all__ = ["cluster", "make_agent", "page", "real_cluster", "real_server", "standin_cluster"]


def past(page: Bed, agent: Agent) -> tuple[PastChange, ...]:
    return page.do(page.source.history(agent.name))


def ended(agent: Agent) -> list[str]:
    return [e["reason"] for e in agent.events() if e["reason"] in ("Applied", "Healed")]


def test_a_change_typed_on_the_node_is_there(page: Bed, make_agent: MakeAgent) -> None:
    agent = make_agent("h100-80gb-hbm3")  # its MIG mode needs no reset, which the agent's session would block
    agent.settings("times: {check-seconds: 5}")
    agent.start()
    page.until(lambda: page.make_observation(agent.name).inventory, "the node")
    assert past(page, agent) == ()
    typed = aliquot(Path(agent.state), "apply", "--sim", "machine", "--gpu", "0", "--mig", "3g.40gb@4")
    assert typed.returncode == 0, typed.stderr
    page.until(lambda: past(page, agent), "the change")
    (only,) = past(page, agent)
    assert (only.node, only.outcome, only.by) == (agent.name, "done", user())
    assert [act.partition(": ")[2] for act in only.actions] == ["set MIG mode to enabled", "created 3g.40gb at 4:4"]
    assert 0 < only.at <= only.ended
    assert page.do(page.source.history("another")) == ()


def test_each_change_is_reported_once_and_refusals_by_their_events(page: Bed, make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.request("all-1g.5gb")
    agent.request("all-balanced")
    agent.request("no-such-config", "failed", "UnknownConfig")
    agent.until(lambda: len(ended(agent)) >= 2, "what the agent said of them")
    page.until(lambda: len(page.source.cache.pasts(agent.name)[agent.name]) == 2, "the journal")
    page.until(lambda: len(past(page, agent)) == 3, "the event of the refusal, which comes after the label")
    found = past(page, agent)
    assert [c.outcome for c in found] == ["refused", "done", "done"]
    assert [c.title.partition(" on ")[0] for c in found[1:]] == ["all-balanced", "all-1g.5gb"]
    assert found[1].title.endswith("5 destroyed, 2 created")
    assert {c.by for c in found[1:]} == {"agent"}
    assert "no named config 'no-such-config'" in found[0].sentence


def test_both_agents_of_a_node_tell_one_journal_and_without_one_events_tell(page: Bed, make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.request("all-1g.5gb")
    agent.until(lambda: ended(agent), "what the agent said of it")
    page.until(lambda: page.source.cache.pasts(agent.name)[agent.name], "the journal")
    reported = page.source.cache.pasts(agent.name)[agent.name]
    api = page.source.api
    assert len(page.do(history.changes(api, agent.name, 9, {agent.name: [*reported, *reported]}))) == 1
    (event,) = page.do(history.changes(api, agent.name, 9))
    assert (event.title, event.outcome, event.actions) == ("named config all-1g.5gb", "done", ())
    assert page.do(history.changes(api, agent.name, 0, {agent.name: reported})) == ()
