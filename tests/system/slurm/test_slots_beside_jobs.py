"""Changes of idle slots beside running jobs, on real clusters of both releases."""

from __future__ import annotations

from .applying import ended
from .bed import Bed, until
from .slotted import adopted, openable, probe, runs


def test_one_gpu_changes_while_a_job_runs_on_the_other(bed: Bed) -> None:
    host = adopted(bed, constrain=True)
    script = f"{probe(bed)}; read x < {bed.folder}/go; {probe(bed)}; srun --overlap {probe(bed)}"
    bed.ok("mkfifo", f"{bed.folder}/go")
    job = runs(bed, "7g.40gb", script=script)
    until(lambda: host.used() == {0}, "the job has no slot")
    own = host.files(0)
    outcome = host.slots("--gpu", "1", "--mig", "3g.20gb*2")
    assert outcome["status"] == "done", outcome
    assert [step["step"] for step in outcome["steps"]] == ["wait", "gate", "gpus", "files", "tell", "verify", "release"]
    assert host.types() == {0: "7g.40gb", 7: "3g.20gb", 11: "3g.20gb"}
    assert sorted(host.gres().split(",")) == ["gpu:a100_3g.20gb:2", "gpu:a100_7g.40gb:1", "gpu:pad:12"]
    assert host.used() == {0}
    beside = [bed.submit(probe(bed), "-w", "n1", "--gres=gpu:a100_3g.20gb:1").out for _ in range(2)]
    for each in beside:
        ended(bed, each)
    opened = [openable((bed.folder / "out" / each).read_text()) for each in beside]
    assert sorted(opened, key=sorted) == sorted((host.files(7), host.files(11)), key=sorted)
    bed.ok("sh", "-c", f"echo > {bed.folder}/go")
    ended(bed, job)
    looks = (bed.folder / "out" / job).read_text().splitlines()
    assert [openable(look) for look in looks] == [own] * 3
    assert bed.job(job, "Restarts") == "0"
    assert "State=" not in (bed.etc / "slurm.conf").read_text().partition("NodeName=n1")[2].splitlines()[0]
    assert bed.ok("scontrol", "show", "reservations").startswith("No reservations")


def test_one_half_of_a_gpu_changes_while_the_other_half_computes(bed: Bed) -> None:
    host = adopted(bed, "--gpu", "0-1", "--mig", "3g.20gb*2", constrain=True)
    bed.ok("mkfifo", f"{bed.folder}/go")
    script = f"read x < {bed.folder}/go; {probe(bed)}; srun --overlap {probe(bed)}"
    job = runs(bed, "3g.20gb", script=script)
    until(lambda: len(host.used()) == 1, "the job has no slot")
    (slot,) = host.used()
    own, gpu, free = host.files(slot), slot // 7, (4 if slot % 7 == 0 else 0)
    request = f"3g.20gb@{slot % 7},2g.10gb@{free}"
    host.slots("--gpu", str(gpu), "--mig", request)
    assert host.types()[7 * gpu + free] == "2g.10gb"
    assert host.used() == {slot}
    fresh = bed.submit(probe(bed), "-w", "n1", "--gres=gpu:a100_2g.10gb:1").out
    ended(bed, fresh)
    assert openable((bed.folder / "out" / fresh).read_text()) == host.files(7 * gpu + free)
    bed.ok("sh", "-c", f"echo > {bed.folder}/go")
    ended(bed, job)
    assert [openable(look) for look in (bed.folder / "out" / job).read_text().splitlines()] == [own] * 2
    assert bed.job(job, "Restarts") == "0"


def test_types_that_only_change_their_slots_are_where_slurm_believes(bed: Bed) -> None:
    # The counts are equal before and after, and 22.05 would keep the previous types.
    host = adopted(bed, "--gpu", "0", "--mig", "3g.20gb@0,1g.5gb@4,1g.5gb@5", constrain=True)
    before = sorted(host.gres().split(","))
    host.slots("--gpu", "0", "--mig", "1g.5gb@0,1g.5gb@1,3g.20gb@4")
    assert sorted(host.gres().split(",")) == before
    assert host.types() == {0: "1g.5gb", 1: "1g.5gb", 4: "3g.20gb", 7: "a100"}
    job = bed.submit(probe(bed), "-w", "n1", "--gres=gpu:a100_3g.20gb:1").out
    ended(bed, job)
    assert openable((bed.folder / "out" / job).read_text()) == host.files(4)


def test_a_gpu_that_a_job_has_is_refused_and_its_job_named(bed: Bed) -> None:
    host = adopted(bed)
    job = runs(bed, "7g.40gb")
    until(lambda: host.used() == {0}, "the job has no slot")
    refused = host.tried("--gpu", "0", "--mig", "3g.20gb*2")
    assert refused.code == 20, refused
    assert f"job {job} (" in refused.err
    assert host.types() == {0: "7g.40gb", 7: "7g.40gb"}
    assert bed.job(job, "JobState") == "RUNNING"
    assert bed.ok("scontrol", "show", "reservations").startswith("No reservations")
    shown = host.run("slurm", "apply", *host.how, "--slots", "--gpu", "0-1", "--mig", "3g.20gb*2", "--dry-run")
    assert shown.code == 0, shown
    assert "steps    wait gate gpus files tell verify release" in shown.out
    assert f"waits for job {job} (" in shown.out


def test_a_gpu_that_fell_off_the_bus_is_named_and_nothing_is_written(bed: Bed) -> None:
    host = adopted(bed)
    job = runs(bed, "7g.40gb")
    until(lambda: host.used() == {0}, "the job has no slot")
    before = [(bed.etc / name).read_text() for name in ("slurm.conf", "gres.conf")], host.gres()
    host.ok("sim", "fault", "lost", "gpu=1")
    for request in (("--gpu", "0", "--mig", "3g.20gb*2"), ()):
        refused = host.tried(*request)
        assert refused.code == 20, refused
        assert "MISSING_GPU" in refused.err
        assert ") fell off the bus" in refused.err
    rendered = host.run("slurm", "render", "--part", "gres", "--node-name", "n1", "--dev-root", "/")
    assert (rendered.code, rendered.out) == (20, ""), rendered
    assert ([(bed.etc / name).read_text() for name in ("slurm.conf", "gres.conf")], host.gres()) == before
    assert (bed.job(job, "JobState"), bed.job(job, "Restarts")) == ("RUNNING", "0")
    assert bed.ok("scontrol", "show", "reservations").startswith("No reservations")


def test_an_array_runs_at_once_after_one_change(bed: Bed) -> None:
    host = adopted(bed, gpus=8)
    array = bed.submit("sleep 30", "-w", "n1", "--array=1-16", "--mem=1", "--gres=gpu:a100_3g.20gb:1")
    assert array.code != 0, "no node has the type yet"
    host.slots("--gpu", "0-7", "--mig", "3g.20gb*2")
    array = bed.submit("sleep 30", "-w", "n1", "--array=1-16", "--mem=1", "--gres=gpu:a100_3g.20gb:1")
    assert array.code == 0, array
    until(lambda: running_tasks(bed, array.out) == 16, lambda: bed.run("squeue", "-r").out)


def running_tasks(bed: Bed, array: str) -> int:
    return bed.ok("squeue", "-h", "-r", "-j", array, "-o", "%T").split().count("RUNNING")
