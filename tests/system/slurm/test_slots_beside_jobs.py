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
