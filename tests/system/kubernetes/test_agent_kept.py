"""Published facts of the GPUs stay true without requests, and unavailable devices are not offered."""

from __future__ import annotations

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.kubernetes.gpu import names
from support import forkserver
from support.agents import Agent, MakeAgent
from support.nodedouble import NodeDouble
from system.kubernetes.test_pods import allocatable, attached, phase, pod

PRODUCT = "nvidia.com/gpu.product"


@pytest.fixture
def node(make_agent: MakeAgent) -> Iterator[tuple[Agent, NodeDouble]]:
    root = Path(tempfile.mkdtemp(prefix="kl-"))
    agent = make_agent("a100-sxm4-40gb*2")
    double = attached(agent, root)
    agent.settings("mig: {strategy: mixed}\ntimes: {check-seconds: 5}")
    yield agent, double
    agent.kill()
    double.stop()
    shutil.rmtree(root, ignore_errors=True)


def test_labels_and_documents_that_a_user_changes_come_back(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    agent.start()
    agent.request("all-1g.5gb")
    product = agent.labels()[PRODUCT]
    document = agent.folder / f"{agent.name}.cdi" / "nvidia.com-gpu.yaml"
    agent.until(document.exists, "a document")
    agent.label(**{PRODUCT: "wrong", "nvidia.com/mig-1g.5gb.count": None})
    document.unlink()
    agent.until(lambda: agent.labels().get(PRODUCT) == product, "the label is back")
    agent.until(lambda: agent.labels().get("nvidia.com/mig-1g.5gb.count") == "14", "the count is back")
    agent.until(document.exists, "the document is back")


def test_a_document_that_cannot_be_written_is_reported_and_written_later(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    folder = agent.folder / f"{agent.name}.cdi"
    folder.mkdir()
    foreign = folder / "nvidia.yaml"
    foreign.write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- {name: '0:0', containerEdits: {}}\n")
    agent.start()
    reported = agent.request("all-1g.5gb")
    agent.until(
        lambda: "cannot write the CDI documents" in str(agent.status().get("details")),
        f"the error is reported: {reported}",
    )
    foreign.unlink()
    agent.until((folder / "nvidia.com-gpu.yaml").exists, "written")
    agent.until(
        lambda: "cannot write the CDI documents" not in str(agent.status().get("details")),
        "the error is no longer reported",
    )


def test_a_reserved_gpu_is_not_offered(node: tuple[Agent, NodeDouble]) -> None:
    agent, _ = node
    agent.patch({"metadata": {"annotations": {names.RESERVED_ANNOTATION: agent.sim.show()["gpus"][0]["pci"]}}})
    agent.start()
    agent.until(lambda: allocatable(agent).get("nvidia.com/gpu") == "1", "one of two")
    agent.patch({"metadata": {"annotations": {names.RESERVED_ANNOTATION: None}}})
    agent.until(lambda: allocatable(agent).get("nvidia.com/gpu") == "2", "both")


def test_pods_that_have_ended_hold_nothing(node: tuple[Agent, NodeDouble]) -> None:
    # Kubelets before 1.34 continue to report them.
    agent, double = node
    agent.start()
    agent.request("all-1g.5gb")
    agent.until(lambda: allocatable(agent).get("nvidia.com/mig-1g.5gb") == "14", "offered")
    pod(agent, "job")
    agent.until(lambda: phase(agent, "job") == "Running", "running")
    double.ended("default", "job", "Succeeded")
    agent.until(lambda: phase(agent, "job") == "Succeeded", "ended")
    agent.request("all-3g.20gb")


def test_removing_the_label_leaves_the_gpus_and_keeps_the_previous_request_on_record(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.start()
    agent.request("all-1g.5gb")
    agent.label(config=None)
    agent.until(lambda: agent.status().get("reason") == "NoWish", "no wish")
    assert agent.status()["config"] == "all-1g.5gb"
    assert len(agent.geometry()[0]) == 7


def test_a_slip_in_the_settings_changes_nothing_but_is_reported(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    agent.environment["MIG_STRATEGY"] = "single"
    agent.settings("mig: {strategy: mixed}")
    agent.start()
    agent.request("all-balanced")
    agent.settings("mig: {strategy: mixd}")
    agent.until(lambda: "mixd" in str(agent.status().get("details")), "the slip is reported")
    assert agent.status()["state"] == "success"
    assert agent.labels()["nvidia.com/mig.strategy"] == "mixed"


def test_a_port_in_use_is_reported_in_words(make_agent: MakeAgent) -> None:
    agent = make_agent("a100-sxm4-40gb")
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        words = [
            "agent",
            "--node-name",
            agent.name,
            "--kubeconfig",
            str(agent.cluster.kubeconfig()),
            "--kubelet-dir",
            "",
        ]
        port = str(taken.getsockname()[1])
        done = forkserver.run(
            [sys.executable, "-m", "aliquot", *words, "--port", port], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 20
    assert f"cannot listen on port {port}" in done.stderr
    assert "Traceback" not in done.stderr


def test_one_bad_value_in_the_settings_stops_no_node(make_agent: MakeAgent) -> None:
    # The previous content of the ConfigMap holds, for the next agent too. An event and a metric report the error.
    agent = make_agent("a100-sxm4-40gb")
    agent.settings("mig: {strategy: single}\nholders: {policy: wait}")
    agent.start()
    agent.request("all-1g.5gb")
    bad = "mig: {strategy: mixed}\ntimes: {check-seconds: 2}"
    agent.settings(bad)

    def events() -> list[str]:
        return [each["message"] for each in agent.events() if each["reason"] == "InvalidSettings"]

    agent.until(events, "an event")
    assert events() == [
        "ConfigMap aliquot-settings has 1 error: ConfigMap aliquot-settings:3:24: 'times.check-seconds' must be "
        "a whole number from 5 to 86400, not the number 2; the last valid settings stay in use"
    ]
    agent.stop()
    agent.start()
    agent.request("all-3g.20gb")
    agent.until(
        lambda: "the last valid settings stay in use" in str(agent.status().get("details")), "the fault in the status"
    )
    assert agent.labels()[PRODUCT].endswith("-MIG-3g.20gb"), "the strategy is what it was"
    agent.settings("mig: {strategy: mixed}")
    agent.until(lambda: "the last valid settings stay in use" not in str(agent.status()), "the fault is mended")
    agent.until(lambda: "nvidia.com/mig-3g.20gb.count" in agent.labels(), "the new settings hold")
