"""The claim agent on a simulated node: real worker, engine, lock and record, without an API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aliquot.cli.main import main
from aliquot.errors import AliquotError
from aliquot.kubernetes.dra.agent.main import ClaimAgent, ClaimAgentOptions, DraDriver, start
from aliquot.kubernetes.dra.agent.node_devices import NodeDevices
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.ranking import PublishPolicy
from aliquot.kubernetes.dra.model.vm_service import read_vm_policy
from aliquot.kubernetes.dra.plugin.claim_service import ClaimService, PreparedClaim
from aliquot.kubernetes.dra.plugin.errors import OtherDriverError
from aliquot.kubernetes.node_agent.agent_run import AgentRun
from aliquot.kubernetes.node_agent.shared_parts import SharedParts
from aliquot.node.connect import connect
from aliquot.sim import lifecycle as control
from unit.kubernetes.dra.agent.bench import Cdi, claim
from unit.kubernetes.dra.agent.test_claim_informer import DRIVER, made

SMALL = claim("train", "gpu-0-mig-1g5gb-19-4", uid="u1").reference
ALLOCATED = made(("r0", "n-aliquot", "gpu-0-mig-1g5gb-19-4"))


class Sockets:
    """Kubelet's side. ``play`` runs once the agent serves, then the agent is stopped."""

    problem = ""

    def __init__(self, play: Any) -> None:
        self.play = play
        self.stop: Any = None
        self.closed = 0
        self.task: asyncio.Task[None] | None = None

    async def start(self, service: ClaimService) -> None:
        async def play() -> None:
            try:
                await self.play(service)
            finally:
                self.stop()

        self.task = asyncio.create_task(play())

    def report_health(self, states: object) -> None:
        self.reported = states

    async def close(self) -> None:
        self.closed += 1
        if self.task is not None:
            await self.task


@pytest.fixture
def template() -> str:
    return "dgx-a100"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: str) -> Iterator[Path]:
    monkeypatch.setenv("ALIQUOT_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("ALIQUOT_BACKEND", "direct")
    monkeypatch.setenv("ALIQUOT_USAGE_SECONDS", "0")
    control.start(str(tmp_path), template, "machine")
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    config = {
        "current-context": "c",
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    yield tmp_path
    control.stop(str(tmp_path))


def agent(state: Path, play: Any, vms: str = "") -> tuple[ClaimAgent, Sockets]:
    sockets = Sockets(play)
    devices = NodeDevices("n", DriverNaming(DRIVER), PublishPolicy(), "any", read_vm_policy(vms))
    driver = DraDriver(devices, sockets, lambda _: Cdi())
    options = ClaimAgentOptions(
        node_name="n1",
        holders=(),
        node="machine",
        kubeconfig=str(state / "config"),
        kubelet_dir="",
        port=-1,
        driver=driver,
    )
    starting = start(options)
    found = ClaimAgent(options, SharedParts(options, [starting.role]))
    sockets.stop = found.context.loop.stop
    return found, sockets


def test_claims_are_prepared_and_known_to_the_next_agent(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers: list[Mapping[str, PreparedClaim | AliquotError]] = []

    async def first(service: ClaimService) -> None:
        answers.append(await service.prepare([SMALL]))  # the API server does not answer
        server: Any = SimpleNamespace(get=_get)
        made_agent.claims._api = server
        answers.append(await service.prepare([SMALL]))

    async def second(service: ClaimService) -> None:
        answers.append(await service.prepare([SMALL]))

    made_agent, sockets = agent(state, first)
    assert asyncio.run(AgentRun(made_agent.context.shared, [made_agent]).run()) == 0
    assert sockets.closed == 1
    assert isinstance(answers[0]["u1"], AliquotError)
    assert isinstance(answers[1]["u1"], PreparedClaim)
    assert made_agent.problem
    figures = made_agent.metrics.registry.get_sample_value
    assert figures("aliquot_claims_applies_total", {"node": "n1", "outcome": "done"}) == 1
    assert [
        figures("aliquot_claims_prepares_total", {"node": "n1", "outcome": outcome})
        for outcome in ("prepared", "failed")
    ] == [1, 1]
    with connect("machine") as node:
        gpu = next(each for each in node.backend.read().gpus if each.minor == 0)
        assert [(i.profile, i.placement) for i in gpu.instances] == [("1g.5gb", "4:1")]
        assert gpu.mig.current == "enabled"

    # No agent runs now, and no process: every verb keeps the device, and names the claim.
    capsys.readouterr()
    assert main(["plan", "--sim", "machine", "--gpu", gpu.pci, "--mig", "7g.40gb"]) == 20
    shown = capsys.readouterr()
    assert "claim team/train" in shown.out + shown.err
    assert "kubectl -n team describe resourceclaim train" in shown.out + shown.err

    next_agent, _ = agent(state, second)
    assert asyncio.run(AgentRun(next_agent.context.shared, [next_agent]).run()) == 0
    assert answers[2] == answers[1]
    assert next_agent.status == "ok: 1 claims are prepared"


async def _get(kind: object, name: str, namespace: str) -> ResourceClaim:
    return ALLOCATED


def test_it_does_not_start_beside_slices_of_another_driver(state: Path) -> None:
    async def never(service: ClaimService) -> None:
        raise AssertionError("it serves")

    made_agent, sockets = agent(state, never)
    foreign = ResourceSlice(metadata=ALLOCATED.metadata)

    async def snapshot(*_: object) -> object:
        return SimpleNamespace(items=(foreign,))

    server: Any = SimpleNamespace(snapshot=snapshot, selection=lambda *_, **__: None)
    made_agent.publisher._api = server
    with pytest.raises(OtherDriverError, match="another DRA driver publishes"):
        asyncio.run(AgentRun(made_agent.context.shared, [made_agent]).run())
    assert sockets.closed == 1


@pytest.mark.parametrize("name", ["../other", "Bad Name", "x" * 64, ""])
def test_a_driver_name_that_the_cluster_would_refuse_is_refused_first(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["agent", "--claims", "--node-name", "n1", "--dra-driver", name]) == 2
    assert "is not a DNS subdomain" in capsys.readouterr().err
