"""The cluster itself: without it nothing below means anything."""

from __future__ import annotations

from .bed import Bed, until

NODE = "CPUs=2 RealMemory=1000 Gres=gpu:a100_1g.5gb:1"
PARTITION = "PartitionName=all Nodes=ALL Default=YES"
GRES = (
    "Name=gpu Type=a100_1g.5gb MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap66,/dev/nvidia-caps/nvidia-cap67\n"
)


def test_a_job_gets_a_slice_and_an_unknown_type_is_refused(bed: Bed) -> None:
    bed.gpu_devices(0, 66, 67)
    bed.conf(f"{bed.node('n1', NODE)}\n{PARTITION}", gres=GRES)
    bed.controller()
    bed.slurmd("n1")
    assert bed.field("n1", "Gres") == "gpu:a100_1g.5gb:1"
    assert "SLURM_STEP_GPUS=0" in bed.ok("srun", "--gres=gpu:a100_1g.5gb:1", "env")
    assert "not available" in bed.submit("true", "--gres=gpu:a100_7g.40gb:1").err
    job = bed.submit("sleep 60", "--gres=gpu:a100_1g.5gb:1").out
    until(lambda: bed.job(job, "JobState") == "RUNNING", "the job never ran")


def test_a_dynamic_node_is_deleted_and_registered_anew(bed: Bed) -> None:
    bed.gpu_devices(0, 66, 67)
    bed.conf("MaxNodeCount=4\nNodeSet=gpus Feature=mig\nPartitionName=all Nodes=gpus Default=YES", gres=GRES)
    bed.controller()
    bed.start("n1", "slurmd", "-D", "-Z", "-N", "n1", "--conf", f"{NODE} Feature=mig")
    until(lambda: "IDLE" in bed.state("n1"), "n1 never registered")
    assert "DYNAMIC_NORM" in bed.state("n1")
    bed.stop("n1")
    bed.ok("scontrol", "delete", "nodename=n1")
    assert bed.state("n1") == ""
