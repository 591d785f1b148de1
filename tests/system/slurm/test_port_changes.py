"""Changes through the port on real clusters of each release and each transport: nothing else changes."""

from __future__ import annotations

import time

import pytest

from aliquot.slurm.client.errors import BusyError, NoNodeError, RefusedError
from aliquot.slurm.client.gres_text import GresError
from aliquot.slurm.client.port import Slurm

from .bed import until
from .transports import REASON, Cluster


def test_drained_and_resumed_while_a_job_runs_on(cluster: Cluster, slurm: Slurm) -> None:
    job = cluster.running("-w", "n1", "--mem=100")
    try:
        slurm.drain("n1", REASON)
        seen = slurm.node("n1")
        assert seen.draining
        assert seen.reason == REASON
        slurm.resume("n1")
        slurm.resume("n1")  # nothing to do is not an error
        assert not slurm.node("n1").draining
        assert [j.state for j in slurm.jobs("n1")] == ["RUNNING"]
    finally:
        cluster.cancel(job)
    with pytest.raises(RefusedError, match="reason"):
        slurm.drain("n1", "")
    assert not slurm.node("n1").draining


def test_down_and_back(cluster: Cluster, slurm: Slurm) -> None:
    slurm.down("dyn1", "aliquot: gone")
    seen = slurm.node("dyn1")
    assert "DOWN" in seen.states
    assert not seen.answers
    slurm.resume("dyn1")
    until(lambda: slurm.node("dyn1").answers, "dyn1 does not come back")


def test_notes_and_features(cluster: Cluster, slurm: Slurm) -> None:
    slurm.note("n1", "aliquot 3f2a\nReason=x")
    assert slurm.node("n1").extra == "aliquot 3f2a Reason=x"
    slurm.note("n1", "")
    assert slurm.node("n1").extra == ""
    for wanted in (("st", "mig", "mig_7x1g"), ("mig", "other"), ("st", "mig")):
        slurm.features("n1", wanted)
        seen = slurm.node("n1")
        assert (seen.features, seen.active_features) == (wanted, wanted)


def test_what_a_record_has_for_people(cluster: Cluster, slurm: Slurm) -> None:
    slurm.describe("n1", {"weight": "7", "comment": "ours to keep", "extra": "row 3"})
    seen = slurm.node("n1")
    assert (seen.weight, seen.comment, seen.extra) == (7, "ours to keep", "row 3")
    slurm.describe("n1", {"weight": "1", "comment": "", "extra": ""})
    cluster.bed.ok("scontrol", "create", "partitionname=memory", "nodes=n1")
    try:
        slurm.join("memory", "dyn1")
        assert "memory" in slurm.node("dyn1").partitions
        assert "memory" in slurm.node("n1").partitions
        with pytest.raises(RefusedError):
            slurm.join("no-such", "n1")
    finally:
        cluster.bed.ok("scontrol", "delete", "partitionname=memory")


def test_reservations_now_and_later(cluster: Cluster, slurm: Slurm) -> None:
    assert not slurm.reservations()
    for name, start, node in (("soon", "now+3600", "n1"), ("now", "now", "dyn1")):
        words = (f"reservationname={name}", f"starttime={start}", f"nodes={node}", "duration=60", "users=root")
        cluster.bed.ok("scontrol", "create", "reservation", *words, "flags=ignore_jobs")
    try:
        assert {r.name: r.nodes for r in slurm.reservations()} == {"soon": ("n1",), "now": ("dyn1",)}
    finally:
        for name in ("soon", "now"):
            cluster.bed.ok("scontrol", "delete", f"reservationname={name}")


def test_a_node_is_reserved_for_maintenance_beside_its_jobs(cluster: Cluster, slurm: Slurm) -> None:
    job = cluster.running("-w", "n1")
    slurm.reserve("aliquot-n1", "n1", 5)
    try:
        with pytest.raises(RefusedError, match="Duplicate reservation name"):
            slurm.reserve("aliquot-n1", "n1", 5)
        (made,) = slurm.reservations()
        assert (made.name, made.nodes, made.end - made.start) == ("aliquot-n1", ("n1",), 300)
        assert {"MAINT", "IGNORE_JOBS"} <= set(made.flags)
        assert abs(made.start - time.time()) < 60
        slurm.extend_reservation("aliquot-n1")
        (held,) = slurm.reservations()
        assert (held.start, held.end - held.start) == (made.start, 365 * 86400)
        assert [j.state for j in slurm.jobs("n1")] == ["RUNNING"]
        assert not slurm.node("n1").draining
    finally:
        slurm.delete_reservation("aliquot-n1")
        cluster.cancel(job)
    assert not slurm.reservations()
    slurm.delete_reservation("aliquot-n1")
    with pytest.raises(RefusedError, match="invalid"):
        slurm.extend_reservation("aliquot-n1")
    with pytest.raises(NoNodeError):
        slurm.reserve("aliquot-n1", "ALL", 5)


def test_a_record_is_made_once_and_a_spoiled_count_never(cluster: Cluster, slurm: Slurm) -> None:
    before = slurm.node("dyn1")
    for name in ("dyn1", "n1", "cl1"):
        with pytest.raises(RefusedError, match="already"):
            slurm.create(f"NodeName={name} CPUs=1 State=FUTURE")
    with pytest.raises(GresError, match="x2"):
        slurm.create("NodeName=spoiled CPUs=1 Gres=gpu:a100:x2 State=FUTURE")
    with pytest.raises(RefusedError):
        slurm.create("NodeName=spoiled CPUs=1 Foo=1 State=FUTURE")
    assert slurm.node("dyn1") == before
    assert "spoiled" not in {n.name for n in slurm.nodes()}


def test_a_busy_node_is_not_forgotten(cluster: Cluster, slurm: Slurm) -> None:
    job = cluster.running("-w", "dyn1", "--mem=100")
    try:
        with pytest.raises(BusyError):
            slurm.delete("dyn1")
        assert [j.state for j in slurm.jobs("dyn1")] == ["RUNNING"]
    finally:
        cluster.cancel(job)


@pytest.mark.parametrize("name", ["nope", "ALL", "all", "n[1-2]", "n1,dyn1", "", "n1 state=down", "-h"])
def test_only_one_node_is_ever_named(cluster: Cluster, slurm: Slurm, name: str) -> None:
    changes = (
        lambda: slurm.drain(name, "aliquot: x"),
        lambda: slurm.down(name, "aliquot: x"),
        lambda: slurm.note(name, "x"),
        lambda: slurm.features(name, ("x",)),
        lambda: slurm.delete(name),
        lambda: slurm.node(name),
    )
    for change in changes:
        with pytest.raises(NoNodeError):
            change()
    assert [n.name for n in slurm.nodes() if n.draining or "DOWN" in n.states] == []


def test_requeued(cluster: Cluster, slurm: Slurm) -> None:
    job = cluster.running("-w", "n1", "--mem=100")
    stays = cluster.running("-w", "n1", "--mem=100", "--no-requeue")
    try:
        slurm.requeue(job)
        until(lambda: [j.state for j in slurm.jobs() if j.id == job] == ["PENDING"], "it was not requeued")
        slurm.requeue(job)  # it waits already
        with pytest.raises(RefusedError):
            slurm.requeue(stays)
        with pytest.raises(RefusedError):
            slurm.requeue(999_999)
        assert [j.state for j in slurm.jobs("n1")] == ["RUNNING"]
    finally:
        cluster.cancel(job, stays)


def test_files_are_read_again(cluster: Cluster, slurm: Slurm) -> None:
    conf = cluster.bed.etc / "slurm.conf"
    kept = conf.read_text()
    for seconds in ("6", "5"):
        conf.write_text(kept.replace("KillWait=5", f"KillWait={seconds}"))
        slurm.reconfigure()
        until(lambda wanted=seconds: slurm.settings()["KillWait"].startswith(wanted), "it was not read again")  # type: ignore[misc]
        until(lambda: cluster.bed.registered("n1") and cluster.bed.registered("dyn1"), "a node does not come back")
