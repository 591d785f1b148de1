"""The devices agent reports the use of its GPUs, with the driver on the node and in a pod of its own."""

from __future__ import annotations

import json
import os
import sys
import time

import pytest

from aliquot.core.model.usage import Usage, coarsen
from aliquot.core.planner.usage_tracking import STEP_MIB
from aliquot.dashboard.cluster.node_views import NodeParts, node_view
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import node_document as document
from support import forkserver
from support.cluster import StandinCluster
from support.devicesagent import DevicesAgent, MakeDevices
from support.driverpods import NAMESPACE
from system.kubernetes.test_agent_shown import shown
from system.kubernetes.test_devices_driver_pod import A2, ONE, POD, play

EVERY = {"ALIQUOT_USAGE_SECONDS": "2"}
MIB = 1024 * 1024
UNKNOWN = "nvidia-smi reports the memory of GPU instances, but not their utilization"
pytestmark = pytest.mark.slow


def reported(agent: DevicesAgent) -> tuple[Usage, ...]:
    """Return the usage in the node's document."""
    found = shown(agent, document.VGPUS)
    return found.usage if found is not None else ()


def figures(agent: DevicesAgent, name: str) -> dict[str, float]:
    """Return the rows of one metric on the agent's page, by GPU instance."""
    rows = [line for line in agent.page("/metrics")[1].splitlines() if line.startswith(f"{name}{{")]
    return {_label(row, "GPU_I_ID"): float(row.rpartition(" ")[2]) for row in rows}


def _label(row: str, name: str) -> str:
    return row.partition(f'{name}="')[2].partition('"')[0]


def asked(agent: DevicesAgent) -> dict[str, dict[str, int]]:
    """Return ``aliquot usage -o json`` on that machine, by GPU instance ("" for a whole GPU)."""
    environment = {**os.environ, "ALIQUOT_STATE_DIR": agent.state, "ALIQUOT_SIM": "machine"}
    words = [sys.executable, "-m", "aliquot", "usage", "-o", "json"]
    done = forkserver.run(words, env=environment, capture_output=True, check=True)
    rows = json.loads(done.stdout)["usage"]
    return {str(row["instance"]) if row["instance"] is not None else "": row for row in rows}


def busy(agent: DevicesAgent, profile: str) -> int:
    """Create two instances of a profile on the machine, and a container on the first."""
    agent.aliquot("apply", "--gpu", "0", "--mig", f"{profile}*2")
    first = agent.sim.show()["gpus"][0]["instances"][0]["id"]
    agent.sim.hold(0, first, memory=3000, busy=0.5)
    return int(first)


def test_instances_are_reported_as_the_command_tells_them(make_devices: MakeDevices) -> None:
    agent = make_devices("h100-80gb-hbm3:vfio")
    agent.environment |= EVERY
    first = busy(agent, "3g.40gb")
    agent.start()
    agent.until(lambda: figures(agent, "aliquot_instance_compute_utilization_ratio"), "a second look")
    wanted = asked(agent)
    assert wanted[str(first)]["memory_used_mib"] == 3000
    for name, field in (("used", "memory_used_mib"), ("size", "memory_total_mib")):
        found = figures(agent, f"aliquot_instance_memory_{name}_bytes")
        assert found == {i: row[field] * MIB for i, row in wanted.items()}, name
    peak = figures(agent, "aliquot_instance_memory_peak_bytes")
    assert {i: -(-most // (STEP_MIB * MIB)) * STEP_MIB for i, most in peak.items()} == {
        i: row["peak_mib"] for i, row in wanted.items()
    }, "the command reads the record, which rounds up"
    assert figures(agent, "aliquot_instance_compute_utilization_ratio")[str(first)] == pytest.approx(0.5, abs=0.05)
    idle = figures(agent, "aliquot_instance_idle_since_timestamp_seconds")
    assert idle == {i: float(row["idle_since"]) for i, row in wanted.items() if int(i) != first}
    agent.sim.hold(0, max(map(int, wanted)), memory=100)  # enough for a document
    agent.until(lambda: reported(agent), "the document tells of it")
    assert {u.instance for u in reported(agent)} == {int(i) for i in wanted}
    assert reported(agent) == coarsen(reported(agent)), "roughly: a node on which nothing happens writes nothing"


def test_a_shared_gpu_is_idle_while_no_machine_has_its_vgpu(make_devices: MakeDevices) -> None:
    agent = make_devices("a2:vfio")
    agent.environment |= EVERY
    agent.start()
    agent.enabled(A2)
    agent.until(lambda: "aliquot_gpu_memory_size_bytes{" in agent.page("/metrics")[1], "a look")
    agent.carrying(ONE)
    agent.until(lambda: reported(agent) and reported(agent)[0].idle_since is not None, "the vGPU is idle")
    agent.sim.start_vm("one", ONE)
    agent.until(lambda: reported(agent)[0].idle_since is None, "a machine has it", 120)
    found = shown(agent, document.VGPUS)
    (whole,) = node_view(
        NodeParts(agent.name, Node(), None, found, None, NAMESPACE), time.time()
    ).usage  # as on the page
    assert (whole.gpu, whole.instance, whole.memory_total_mib) == (A2, None, asked(agent)[""]["memory_total_mib"])


def test_a_gpu_that_is_passed_through_whole_has_no_figures(make_devices: MakeDevices) -> None:
    agent = make_devices("a2:vfio*2")
    agent.environment |= EVERY
    agent.aliquot("apply", "--gpu", "0", "--passthrough", "on")
    agent.start()
    agent.until(lambda: "aliquot_gpu_memory_size_bytes{" in agent.page("/metrics")[1], "a look")
    page = agent.page("/metrics")[1].splitlines()
    rows = [row for row in page if row.startswith("aliquot_gpu_memory_size_bytes{")]
    assert [_label(row, "gpu") for row in rows] == ["1"]
    assert "aliquot_gpu_passthrough" in "\n".join(page)


def test_a_driver_in_a_pod_tells_memory_by_one_program(
    standin_cluster: StandinCluster, devices_on_standin: MakeDevices
) -> None:
    agent = devices_on_standin("h100-80gb-hbm3:vfio")
    agent.environment |= EVERY
    agent.check_s = 300
    first = busy(agent, "3g.40gb")
    play(standin_cluster, agent)
    agent.start("--driver", "pod")
    agent.until(lambda: figures(agent, "aliquot_instance_memory_used_bytes"), "a look at use")
    assert figures(agent, "aliquot_instance_memory_used_bytes")[str(first)] == 3000 * MIB
    assert figures(agent, "aliquot_instance_compute_utilization_ratio") == {}, "never made up"
    commands, observations = standin_cluster.standin.execs.asked, agent.observations()
    begun = len(commands)
    agent.until(lambda: len(commands) > begun + 1, "two more looks at use")
    if agent.observations() == observations:
        assert {command.words for command in commands[begun:]} == {("nvidia-smi", "-q")}
    assert agent.log().count(UNKNOWN) == 1


def test_a_driver_pod_that_disappears_stops_nothing(
    standin_cluster: StandinCluster, devices_on_standin: MakeDevices
) -> None:
    agent = devices_on_standin("h100-80gb-hbm3:vfio")
    agent.environment |= EVERY
    first = busy(agent, "3g.40gb")
    play(standin_cluster, agent)
    agent.start("--driver", "pod")
    agent.until(lambda: figures(agent, "aliquot_instance_memory_used_bytes"), "a look at use")
    agent.call("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{POD}?gracePeriodSeconds=0")
    standin_cluster.standin.execs.stop(POD, NAMESPACE)
    agent.until(lambda: figures(agent, "aliquot_instance_memory_used_bytes") == {}, "no metrics of an unavailable GPU")
    before = time.monotonic()
    agent.until(lambda: time.monotonic() - before > 12, "a look at use would have been due")
    agent.sim.hold(0, first, memory=2000)
    play(standin_cluster, agent)
    agent.until(
        lambda: figures(agent, "aliquot_instance_memory_used_bytes").get(str(first)) == 5000 * MIB, "all of it again"
    )
    assert "internal error" not in agent.log()
