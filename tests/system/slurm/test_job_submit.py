"""The shipped ``job_submit.lua`` in the real plug-in: what users read, what Slurm refuses, and a site's own rules."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from .bed import Bed, until

SCRIPT = Path(__file__).resolve().parents[3] / "deploy/slurm/job_submit.lua"
CAPS = "/dev/nvidia-caps/nvidia-cap"
RECORDS = (("a100_1g.5gb", 66), ("a100_1g.5gb", 75), ("a100_3g.20gb", 84), ("pad", 93))
SHAPE = "CPUs=16 RealMemory=1000"
SITE = """
function slurm_job_submit(job, parts, uid)
  if job.name == "forbidden" then slurm.log_user("site: not on Mondays") return slurm.ERROR end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, parts, uid) return slurm.SUCCESS end
dofile("{folder}/aliquot_job_submit.lua")
return slurm.SUCCESS
"""


@pytest.fixture
def gated(bed: Bed) -> Bed:
    """Start a cluster with the plug-in: n1 has MIG devices and a filler, n2 a whole GPU in a partition of its own."""
    bed.gpu_devices(0, *(cap + k for _, cap in RECORDS for k in (0, 1)))
    bed.gpu_devices(1)
    lines = [
        f"NodeName=n1 Name=gpu Type={kind} MultipleFiles=/dev/nvidia0,{CAPS}{cap},{CAPS}{cap + 1}"
        for kind, cap in RECORDS
    ]
    nodes = bed.node("n1", f"{SHAPE} Gres=gpu:a100_1g.5gb:2,gpu:a100_3g.20gb:1,gpu:pad:1")
    bed.conf(
        f"{nodes}\n{bed.node('n2', f'{SHAPE} Gres=gpu:a100:1')}\n"
        "PartitionName=main Nodes=n1 Default=YES\nPartitionName=whole Nodes=n2",
        more="SlurmdParameters=config_overrides\nJobSubmitPlugins=lua",
        gres="\n".join([*lines, "NodeName=n2 Name=gpu Type=a100 File=/dev/nvidia1", ""]),
    )
    shutil.copy(SCRIPT, bed.etc)
    bed.controller()
    bed.slurmd("n1")
    bed.slurmd("n2")
    done = bed.aliquot("slurm", "types", "--list", "--out", str(bed.etc / "aliquot-types"))
    assert done.code == 0, done
    return bed


def refused(bed: Bed, *words: str) -> str:
    """Submit a job that must be refused, and return what its user reads."""
    done = bed.submit("true", *words)
    assert done.code != 0, (words, done)
    return done.err


def test_users_read_what_to_request(gated: Bed) -> None:
    listed = (gated.etc / "aliquot-types").read_text().splitlines()[1:]
    assert listed == ["type main a100_1g.5gb", "type main a100_3g.20gb", "type whole a100"]

    for words in (
        ["--gres=gpu:1"],
        ["--gpus=2"],
        ["-n2", "--gpus-per-task=1"],
        ["--gpus-per-node=1"],
        ["--sockets-per-node=1", "--gpus-per-socket=1"],
        ["-p", "whole,main", "--gres=gpu"],
        ["--gres=gpu:a100_1g.5gb:1", ":", "--gres=gpu:1"],  # the second part of a heterogeneous job
    ):
        message = refused(gated, *words)
        assert "needs a type in partition main" in message, words
        assert "one of a100_1g.5gb, a100_3g.20gb" in message, words
        assert "Invalid generic resource (gres) specification" in message, words
    assert "the type pad stands for no device" in refused(gated, "--gres=gpu:pad:1")
    message = refused(gated, "--gpus=a100_3g.40gb:1")
    assert "partition main has no type a100_3g.40gb; nearest: a100_3g.20gb, a100_1g.5gb" in message
    assert "Requested node configuration is not available" in message, "Slurm's own refusal"

    for words in (
        ["--gres=gpu:a100_1g.5gb:1"],
        ["-n2", "--gpus-per-task=a100_1g.5gb:1"],
        ["-p", "whole", "--gpus=1"],
        ["--gres=gpu:0"],
        ["--array=1-3", "--gres=gpu:a100_3g.20gb:1"],
        [],
    ):
        done = gated.submit("true", *words)
        assert (done.code, done.err) == (0, ""), words
    srun = gated.run("srun", "--gres=gpu:1", "true")
    assert srun.code != 0
    assert "needs a type" in srun.err


def test_a_waiting_job_cannot_be_changed_into_a_refused_one(gated: Bed) -> None:
    job = gated.submit("true", "--hold", "--gres=gpu:a100_1g.5gb:1").out
    for gres in ("gpu:pad:1", "gpu:1"):
        assert gated.run("scontrol", "update", "jobid=" + job, f"gres={gres}").code != 0
    assert gated.job(job, "TresPerNode").endswith("gpu:a100_1g.5gb:1")
    gated.ok("scontrol", "update", "jobid=" + job, "gres=gpu:a100_3g.20gb:1")


def test_a_sites_rules_stay_beside_it(gated: Bed) -> None:
    (gated.etc / "job_submit.lua").rename(gated.etc / "aliquot_job_submit.lua")
    (gated.etc / "job_submit.lua").write_text(SITE.format(folder=gated.etc))
    later = time.time() + 60  # Slurm reads a file again only if it is newer than the second of the last reading
    os.utime(gated.etc / "job_submit.lua", (later, later))
    until(lambda: "not on Mondays" in gated.submit("true", "--job-name=forbidden").err, "the new file is not read")
    assert "needs a type" in refused(gated, "--gres=gpu:1")
    assert gated.submit("true", "--gres=gpu:a100_1g.5gb:1").code == 0
