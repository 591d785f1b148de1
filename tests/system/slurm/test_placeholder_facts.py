"""Slurm's behaviour with a record for layouts that no node has now, on which Aliquot's placeholders rely."""

from __future__ import annotations

from .bed import Bed, until

DYNAMIC = "MaxNodeCount=4\nNodeSet=gpus Feature=mig\nPartitionName=all Nodes=gpus Default=YES"
LAYOUTS = "CPUs=2 RealMemory=1000 Gres=gpu:a100_7g.40gb:1,gpu:a100_1g.5gb:7 Feature=mig State=FUTURE"
REFUSED = "Requested node configuration is not available"


def _again(bed: Bed) -> None:
    bed.stop("slurmctld")
    bed.controller()


def test_a_line_in_slurm_conf_lets_jobs_wait_and_is_never_shown(bed: Bed) -> None:
    bed.conf(f"NodeName=layouts {LAYOUTS}\n{DYNAMIC}")
    bed.controller()
    for _ in range(2):
        job = bed.submit("true", "--gres=gpu:a100_7g.40gb:1")
        assert job.code == 0, job
        assert REFUSED in bed.submit("true", "--gres=gpu:a100_3g.20gb:1").err
        assert "layouts" not in bed.ok("sinfo", "-N")
        _again(bed)
        until(lambda job=job: bed.job(job.out, "JobState") == "PENDING", "the job did not stay")  # type: ignore[misc]


def test_a_record_made_at_run_time_loses_its_types_when_slurmctld_starts_again(bed: Bed) -> None:
    bed.conf(DYNAMIC)
    bed.controller()
    bed.ok("scontrol", "create", "NodeName=layouts", *LAYOUTS.split())
    assert bed.submit("true", "--gres=gpu:a100_7g.40gb:1").code == 0
    _again(bed)
    assert REFUSED in bed.submit("true", "--gres=gpu:a100_7g.40gb:1").err
    bed.ok("scontrol", "delete", "nodename=layouts")
    bed.ok("scontrol", "create", "NodeName=layouts", *LAYOUTS.split())
    assert bed.submit("true", "--gres=gpu:a100_7g.40gb:1").code == 0
