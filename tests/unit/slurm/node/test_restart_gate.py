"""The gate of a restart of slurmctld: on which nodes no job starts, and for how long."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.slurm.client.errors import RefusedError
from aliquot.slurm.client.models import Gres, SlurmNode, SlurmReservation
from aliquot.slurm.node import restart_gate as gate
from aliquot.slurm.node import slot_gate
from aliquot.slurm.node.reconfigure import COMMAND_S
from aliquot.slurm.node.slurmd import END_S, STOP_S
from support.slurmfake import Host

GPU = (Gres("gpu", "a100", 2),)
NAME = "aliquot.restart-n1"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """Build a cluster of four nodes and a placeholder; n1, n2 and n4 have GPUs."""
    made = Host(tmp_path, monkeypatch)
    states = {"n1": "MIXED", "n2": "IDLE", "n3": "IDLE", "n4": "DOWN", "layouts": "FUTURE"}
    made.cluster.records = {
        name: SlurmNode(name, frozenset({state}), gres=() if name == "n3" else GPU, slurmd_start=5)
        for name, state in states.items()
    }
    return made


def reserved(host: Host) -> dict[str, tuple[str, ...]]:
    return {each.name: each.nodes for each in host.cluster.reserved}


def test_the_other_nodes_with_gpus_are_reserved(host: Host) -> None:
    assert gate.close("n1", host.context) == "-R"
    assert reserved(host) == {NAME: ("n2", "n4")}


def test_a_node_whose_name_ends_like_the_gate_keeps_its_own_gate() -> None:
    nodes = ("n1", "n1-restart", "restart-n1", "n1.restart")
    assert not {gate.name(node) for node in nodes} & {slot_gate.name(node) for node in nodes}


def test_the_reservation_outlasts_the_stop_of_slurmd_and_the_restart_of_slurmctld(host: Host) -> None:
    gate.close("n1", host.context)
    (found,) = host.cluster.reserved
    assert found.end - found.start >= STOP_S + END_S + COMMAND_S + gate.REGISTERED_S


def test_a_cluster_without_other_gpus_needs_no_reservation(host: Host) -> None:
    for name in ("n2", "n4"):
        host.cluster.change(name, gres=())
    assert gate.close("n1", host.context) == "-R"
    assert not host.cluster.reserved


def test_slurmctld_would_end_the_jobs_of_an_invalid_node(host: Host) -> None:
    host.cluster.change("n3", states=frozenset({"IDLE", "DRAIN", "INVALID_REG"}))
    assert gate.close("n1", host.context) == ""
    assert not host.cluster.reserved


def test_the_reservation_of_an_interrupted_change_is_renewed(host: Host) -> None:
    host.cluster.reserved = [SlurmReservation(NAME, ("n9",), ("MAINT", "IGNORE_JOBS"), 1, 2)]
    assert gate.close("n1", host.context) == "-R"
    assert reserved(host) == {NAME: ("n2", "n4")}


@pytest.mark.parametrize(("name", "options"), [("site", ""), ("aliquot-n2", "-R"), ("aliquot.restart-n4", "-R")])
def test_jobs_of_a_maintenance_of_the_site_would_start(host: Host, name: str, options: str) -> None:
    host.cluster.reserved = [SlurmReservation(name, ("n2",), ("MAINT",), 1, 2**40)]
    assert gate.close("n1", host.context) == options
    assert (NAME in reserved(host)) is bool(options)


def test_a_refused_reservation_leaves_the_restart_as_it_was(host: Host) -> None:
    def refuse(call: str) -> None:
        if call.startswith("reserve"):
            raise RefusedError("Slurm refused")

    host.cluster.before = refuse
    assert gate.close("n1", host.context) == ""


def test_jobs_start_once_slurmctld_knows_the_devices_of_every_node(host: Host) -> None:
    gate.close("n1", host.context)
    host.cluster.change("n2", slurmd_start=0)
    looks: list[str] = []

    def sleeps(seconds: float) -> None:
        looks.append("closed" if host.cluster.reserved else "open")
        if len(looks) == 3:
            host.cluster.change("n2", slurmd_start=7)

    context = host.context
    context.sleep = sleeps  # type: ignore[method-assign]
    gate.open_again("n1", context)
    assert looks == ["closed"] * 3
    assert not host.cluster.reserved
    assert not host.messages


@pytest.mark.parametrize("state", ["UNKNOWN", "DOWN"])
def test_a_node_on_which_no_job_starts_is_not_waited_for(host: Host, state: str) -> None:
    # Without -R, slurmctld starts no job before a node has registered.
    gate.close("n1", host.context)
    host.cluster.change("n2", slurmd_start=0, states=frozenset({state}))
    gate.open_again("n1", host.context)
    assert not host.cluster.reserved


def test_a_slurmd_that_does_not_register_is_reported_and_the_reservation_ends_by_itself(host: Host) -> None:
    gate.close("n1", host.context)
    host.cluster.change("n2", slurmd_start=0)
    gate.open_again("n1", host.context)
    assert reserved(host) == {NAME: ("n2", "n4")}
    (note,) = host.messages
    assert note.startswith("note: slurmd of n2 has not registered since slurmctld restarted. Reservation " + NAME)


def test_without_a_reservation_nothing_is_asked(host: Host) -> None:
    gate.open_again("n1", host.context)
    assert not host.cluster.calls
