"""The contract of the port on real clusters: each release and each transport (JSON, text, slurmrestd by TCP and
socket).
"""

from __future__ import annotations

import time

import msgspec
import pytest

from aliquot.errors import AliquotError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.models import Gres, SlurmNode
from aliquot.slurm.client.port import Slurm
from aliquot.slurm.conf import hostlist

from .bed import until
from .transports import REASON, TRANSPORTS, Cluster


def test_it_knows_release_and_settings(cluster: Cluster, slurm: Slurm) -> None:
    assert str(slurm.version()).startswith(cluster.bed.release.name)
    settings = slurm.settings()
    assert settings["ClusterName"] == "bed"
    assert settings["SlurmdSpoolDir"].endswith("/spool/%n")
    assert settings["AccountingStorageBackupHost"] == ""


def test_a_node_is_seen_as_it_is(cluster: Cluster, slurm: Slurm) -> None:
    n1 = slurm.node("n1")
    assert n1.gres == (Gres("gpu", "a100_1g.5gb", 7), Gres("gpu", "a100", 1))
    assert (n1.count("a100_1g.5gb"), n1.count("a100"), n1.count("a100_7g.40gb")) == (7, 1, 0)
    assert (n1.cpus, n1.memory_mib, n1.sockets * n1.cores * n1.threads) == (16, 8000, 16)
    assert (n1.features, n1.partitions) == (("st", "mig"), ("all", "off"))
    assert n1.port == cluster.bed.ports.of("n1")
    assert n1.version.startswith(cluster.bed.release.name)
    assert abs(n1.slurmd_start - time.time()) < 3600
    assert n1.answers
    assert not n1.draining
    assert not n1.invalid
    assert not n1.dynamic
    assert slurm.node("dyn1").dynamic


def test_future_and_powered_down_nodes_are_seen(cluster: Cluster, slurm: Slurm) -> None:
    slurm.create("NodeName=later CPUs=2 RealMemory=1000 Gres=gpu:a100_3g.20gb:2,gpu:a100_7g.40gb:1 State=FUTURE")
    try:
        slurm.drain("later", "aliquot: placeholder")
        found = {n.name: n for n in slurm.nodes()}
        assert set(found) == {"n1", "dyn1", "cl1", "later"}
        assert {"FUTURE", "DRAIN"} <= found["later"].states
        assert found["later"].reason == "aliquot: placeholder"
        assert found["later"].count("a100_3g.20gb") == 2
        assert not found["later"].answers
        assert {"CLOUD", "POWERED_DOWN"} <= found["cl1"].states
        assert not found["cl1"].answers
    finally:
        slurm.delete("later")
    with pytest.raises(NoNodeError):
        slurm.node("later")


def test_what_a_job_wants_in_its_four_forms(cluster: Cluster, slurm: Slurm) -> None:
    small, whole = Gres("gpu", "a100_1g.5gb", 1), Gres("gpu", "a100", 1)
    held = ["--hold", "--mem=100"]
    forms = {
        cluster.submit(*held, "--gres=gpu:a100_1g.5gb:1,gpu:a100:1"): (("node", small), ("node", whole)),
        cluster.submit(*held, "--gpus=a100:1", "--cpus-per-gpu=2"): (("job", whole),),
        cluster.submit(*held, "-n2", "--gpus-per-task=a100_1g.5gb:1"): (("task", small),),
        cluster.submit(*held, "--sockets-per-node=1", "--gpus-per-socket=a100:1"): (("socket", whole),),
        cluster.submit(*held, "--gpus-per-node=1"): (("node", Gres("gpu", "", 1)),),
        cluster.submit(*held): (),
    }
    try:
        found = {j.id: j.requested for j in slurm.jobs()}
        assert {job: found[job] for job in forms} == forms
    finally:
        cluster.cancel(*forms)


def test_what_a_waiting_job_says_of_itself(cluster: Cluster, slurm: Slurm) -> None:
    words = [
        "--constraint=st&mig",
        "--nodelist=n1",
        "--exclude=dyn1",
        "--exclusive",
        "--no-requeue",
        "-p",
        "all,clouds",
    ]
    job = cluster.submit("--hold", "--job-name=a b JobState=X", "--mem-per-cpu=50", "-n3", *words)
    array = cluster.submit("--hold", "--array=1-5%2", "--mem=1G")
    try:
        found = {j.id: j for j in slurm.jobs()}
        mine = found[job]
        assert (mine.state, mine.pending, mine.reason, mine.priority) == ("PENDING", True, "JobHeldUser", 0)
        assert (mine.user, mine.name, mine.features) == ("root", "a b JobState=X", "st&mig")
        assert (mine.required_nodes, mine.excluded_nodes, mine.partitions) == (("n1",), ("dyn1",), ("all", "clouds"))
        assert (mine.exclusive, mine.requeue, mine.tasks, mine.memory_mib) == (True, False, 3, 150)
        assert (mine.nodes, mine.allocated) == ((), ())
        assert abs(mine.submitted - time.time()) < 600
        assert [j.id for j in slurm.jobs() if not j.exclusive and j.requeue] == [array]
        assert found[array].memory_mib == 1024
    finally:
        cluster.cancel(job, array)
    assert slurm.jobs() == ()


def test_what_a_running_job_has(cluster: Cluster, slurm: Slurm) -> None:
    both = cluster.running("-N2", "--gres=gpu:a100_1g.5gb:2", "--mem=100")
    one = cluster.running("-w", "n1", "--gres=gpu:a100:1", "--mem=100")
    limited = cluster.running("-w", "n1", "--mem=100", "--time=5")
    try:
        found = {j.id: j for j in slurm.jobs()}
        assert found[both].nodes == ("dyn1", "n1")
        assert found[both].allocated == tuple((n, Gres("gpu", "a100_1g.5gb", 2, (0, 1))) for n in ("dyn1", "n1"))
        assert found[one].allocated == (("n1", Gres("gpu", "a100", 1, (7,))),)
        assert found[one].state == "RUNNING"
        assert 0 < found[limited].latest_end - time.time() <= 300
        waiting = cluster.submit("--hold")
        assert [j.id for j in slurm.jobs(holding=True)] == [j.id for j in slurm.jobs() if j.id != waiting]
        cluster.cancel(waiting)
        assert [j.id for j in slurm.jobs("dyn1")] == [both]
        assert sorted(j.id for j in slurm.jobs("n1")) == [both, one, limited]
        n1 = slurm.node("n1")
        assert n1.gres_used == (Gres("gpu", "a100_1g.5gb", 2, (0, 1)), Gres("gpu", "a100", 1, (7,)))
        assert n1.cpus_allocated == 3
        assert "MIXED" in n1.states
    finally:
        cluster.cancel(both, one, limited)


def test_partitions(cluster: Cluster, slurm: Slurm) -> None:
    found = {p.name: p for p in slurm.partitions()}
    assert set(found) == {"all", "clouds", "off"}
    assert (found["all"].nodes, found["all"].up) == (("dyn1", "n1"), True)
    assert (found["clouds"].nodes, found["clouds"].spec) == (("cl1",), "cl1")
    assert not found["off"].up
    assert "n1" in found["off"].nodes


def test_every_way_sees_the_same(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cluster.bin), prepend=":")
    transports = {way: cluster.ask(way) for way in TRANSPORTS}
    transports["text"].create("NodeName=later CPUs=2 RealMemory=1000 Gres=gpu:a100_3g.20gb:2 Feature=mig State=FUTURE")
    jobs = [
        cluster.running(
            "-w", "n1", "--gres=gpu:a100_1g.5gb:1", "--mem=10"
        ),  # so that the next job gets other devices on each node
        cluster.running("-N2", "--gres=gpu:a100_1g.5gb:2", "--mem-per-cpu=10", "-C", "mig"),
        cluster.submit("--gpus=a100:2", "--mem=1000", "--begin=now+1hour"),
        cluster.submit("--hold", "-N1", "--array=1-3", "--exclusive", "--gpus-per-task=1", "-n2"),
    ]
    try:
        transports["text"].drain("later", REASON)
        # A node that powers up or down, and a waiting job's reason, may change between two polls.
        until(lambda: not _differences(transports), lambda: "\n".join(_differences(transports)), 20)
        assert len(transports["json"].jobs()) == len(jobs)
    finally:
        cluster.cancel(*jobs)
        transports["text"].delete("later")


def _differences(transports: dict[str, Slurm]) -> list[str]:
    """Return what one transport reports and not all of them."""
    answer: dict[str, set[object]] = {way: {*_nodes(s), *s.jobs(), *_up(s)} for way, s in transports.items()}
    common = set.intersection(*answer.values())
    return [f"{way}: {line}" for way, lines in answer.items() for line in lines - common]


def _nodes(slurm: Slurm) -> list[SlurmNode]:
    """Return the nodes without the ports of dynamic nodes, which the text output lacks. Their order does not matter."""
    return [msgspec.structs.replace(n, port=0 if n.dynamic else n.port) for n in slurm.nodes()]


def _up(slurm: Slurm) -> list[str]:
    return [p.name for p in slurm.partitions() if p.up]


def test_what_it_refuses_says_what_to_type(cluster: Cluster, slurm: Slurm) -> None:
    with pytest.raises(AliquotError) as refused:
        slurm.drain("nope", "aliquot: x")
    assert refused.value.next_step
    assert refused.value.exit_code == 20
    assert "nope" in refused.value.brief


@pytest.mark.parametrize(
    "names", ["n1,n2,n3,m,n9,n10", "n08,n09,n10,n8", "r1n1,r1n2,r2n1", "a,a1,b-01,b-02", "x[1-3]y[01-02],z", "n[1,3-5]"]
)
def test_host_lists_are_slurms(cluster: Cluster, names: str) -> None:
    ours = hostlist.expand(names)
    assert list(ours) == cluster.bed.ok("scontrol", "show", "hostnames", names).split()
    folded = cluster.bed.ok("scontrol", "show", "hostnames", hostlist.compress(ours)).split()
    assert sorted(folded) == sorted(ours)


def test_the_queue_has_what_a_scheduler_needs_of_the_jobs(cluster: Cluster, slurm: Slurm) -> None:
    small = "--gres=gpu:a100_1g.5gb:1"
    running = cluster.running("-w", "n1", small, "--mem=10", "--time=1-2", "--job-name=a JobId=9")
    waiting = [
        cluster.submit("--hold", small, "--array=1-9:2%2", "--mem-per-cpu=50", "-n3", "--time=90"),
        cluster.submit("--hold", small, "-C", "st&mig", "-w", "n1", "-x", "dyn1", "-p", "all,clouds", "--mem=1G"),
        cluster.submit("--hold", "-n2", "-N1-2", "--gpus-per-task=a100_1g.5gb:1", "--mem=10"),
        cluster.submit("--hold", "-N2", "--gpus=a100:2", "--mem=10"),
        cluster.submit("--hold", "--sockets-per-node=1", "--gpus-per-socket=a100:1", "--mem=0"),
        cluster.submit("--hold", "--constraint=mig", "--mem=1500M", "--begin=now+1hour"),
    ]
    left_out = cluster.submit("--hold", "--mem=10")
    try:
        whole = {j.id: j for j in slurm.jobs()}
        found = {j.id: j for j in slurm.queue()}
        assert left_out in whole
        assert set(found) == {running, *waiting}
        assert found.pop(running) == whole[running]
        for number, job in found.items():
            of_no_use = {"name": job.name, "exclusive": job.exclusive, "requeue": job.requeue}
            assert job == msgspec.structs.replace(whole[number], **of_no_use, node_limit=job.node_limit)
        limits = {number: whole[number].node_limit for number in waiting[2:4]}
        assert {number: found[number].node_limit for number in limits} == limits
        array = found[waiting[0]]
        assert (array.array_job, array.array_tasks, array.array_limit) == (waiting[0], 5, 2)
        brief = {j.id: j for j in slurm.queue(details=False)}
        assert set(brief) == {running, *waiting}
        assert (brief[running].state, brief[running].nodes) == ("RUNNING", ("n1",))
    finally:
        cluster.cancel(running, *waiting, left_out)
    assert slurm.queue() == ()
