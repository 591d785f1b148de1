"""A guide to MIG under Slurm, followed: its files with their errors, its seven steps as one command, its containers.

The guide lists lines for gres.conf and slurm.conf. It changes a layout by seven steps of an administrator and gives an
instance to ``docker run`` by an index.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from support import forkserver

from .applying import Host, idle, restart
from .bed import Bed, Ran, until
from .truth import Jobs, Watch, instances, refusal, writes

NODE = "compute-01"
GRES_CONF = """\
# Standard Physical GPU
# NodeName=compute-01 Name=gpu Type=a100 File=/dev/nvidia0

# MIG Instances
# Map specific MIG device files (created by driver) to SLURM GRES
NodeName=compute-01 Name=gpu Type=1g.5gb File=/dev/nvidia-caps/nvidia-cap1
NodeName=compute-01 Name=gpu Type=1g.5gb File=/dev/nvidia-caps/nvidia-cap2
# ...
"""
STEPS = """\
1. Drain the compute node: `scontrol update NodeName=compute-01 State=DRAIN`
2. Wait for running jobs to complete.
3. Destroy existing instances: `sudo nvidia-smi mig -i 0 -dgi`
4. Create new instances: `sudo nvidia-smi mig -i 0 -cgi 9,9 -C`
5. Update `gres.conf` and `slurm.conf` to reflect new resource counts.
6. Restart `slurmd`: `sudo systemctl restart slurmd`
7. Resume the node: `scontrol update NodeName=compute-01 State=RESUME`
"""


def cluster(bed: Bed, gres: str, text: str) -> Host:
    """Start the guide's node with one A100 in seven instances. slurmctld runs, slurmd does not yet."""
    bed.conf(f"{bed.node(NODE, f'CPUs=2 RealMemory=1000 {gres}')}\nPartitionName=all Nodes=ALL Default=YES", gres=text)
    restart(bed)
    bed.ok("sh", "-c", "slurmctld >/dev/null 2>&1")
    until(lambda: "UP" in bed.run("scontrol", "ping").out, "slurmctld does not answer")
    host = Host(bed, NODE, "a100-sxm4-40gb")
    host.ok("apply", "--gpu", "0", "--mig", "1g.5gb*7")
    return host


def check(host: Host, *words: str) -> Ran:
    where = ("--conf-dir", str(host.bed.etc), "--node-name", NODE, "--dev-root", "/")
    return host.run("slurm", "check", *where, *words)


def test_the_guides_files_make_the_node_invalid_each_error_is_named_and_one_command_cures_it(bed: Bed) -> None:
    host, jobs = cluster(bed, "Gres=gpu:a100:1,gpu:1g.5gb:7", GRES_CONF), Jobs(bed)
    bed.gpu_devices(0, 1, 2)
    bed.ok("sh", "-c", f"slurmd -N {NODE} -L {bed.logs}/{NODE}.log")
    until(lambda: "INVAL" in bed.state(NODE), lambda: bed.state(NODE))
    reported = check(host, "--live", "-o", "json")
    assert reported.code == 30
    found: list[dict[str, Any]] = msgspec.json.decode(reported.out)["findings"]
    gres, conf = bed.etc / "gres.conf", bed.etc / "slurm.conf"
    line = 1 + conf.read_text().splitlines().index(next(w for w in conf.read_text().splitlines() if NODE in w))
    places = Counter((f["rule"], f["file"], f["line"]) for f in found if f["severity"] == "error")
    for rule in ("ADMIN_CAPABILITY", "LONE_CAPABILITY"):
        assert places[rule, str(gres), 6] == places[rule, str(gres), 7] == 1, places
    assert places["COUNTED_TWICE", str(conf), line] == 1
    assert places["COUNT_MISMATCH", str(conf), line] == 2
    assert "NODE_INVALID" in {rule for rule, _, _ in places}
    assert "Gres=gpu:a100:1,gpu:1g.5gb:7 counts a GPU as whole" in reported.out
    # The next command is the one that the refusal prints.
    before = gres.read_text(), conf.read_text(), bed.state(NODE)
    refused = host.apply()
    assert refused.code == 2
    error = refusal(refused.err)
    assert f"{gres}:6 also offers this node's GPUs" in error["message"]
    assert host.apply("--force").code == 2, "--force applies only to Aliquot's own lines"
    assert (gres.read_text(), conf.read_text(), bed.state(NODE)) == before
    bed.ok("sh", "-c", error["next"])
    host.applied()
    until(lambda: idle(bed, NODE), lambda: bed.state(NODE))
    assert bed.field(NODE, "Gres") == "gpu:a100_1g.5gb:7"
    jobs.one_runs("--gres=gpu:a100_1g.5gb:1")
    assert {f["rule"] for f in msgspec.json.decode(check(host, "--live", "-o", "json").out)["findings"]} <= {
        "OPEN_DEVICES",
        "NO_TASK_PROLOG",
    }, "jobs in this cluster are not fenced"


def test_the_guides_seven_steps_are_one_command(bed: Bed) -> None:
    host, jobs = cluster(bed, "", ""), Jobs(bed)
    host.applied()
    until(lambda: idle(bed, NODE), lambda: bed.state(NODE))
    assert "not available" in jobs.refused("--gres=gpu:a100_3g.20gb:1"), (
        "refused, although the GPU could be partitioned for it"
    )
    job = jobs.running(f"{writes(host)}; sleep 3; {writes(host)}", "--gres=gpu:a100_1g.5gb:1")
    with Watch(host) as watch:
        done = host.apply("--gpu", "0", "--mig", "3g.20gb,3g.20gb", "--jobs", "wait", "--timeout", "60")
        assert done.code == 0, done
        jobs.one_runs("--gres=gpu:a100_3g.20gb:2")
    messages = [line.split()[0] for line in done.err.splitlines()]
    assert messages[0] == "draining", messages  # 1, with a reason: Slurm refuses a drain without one
    assert f"waiting for job {job}" in done.err  # 2
    first, last = (bed.folder / "out" / job).read_text().split()
    assert first == last, "no instance was touched while the job ran"
    assert instances(host) == Counter({"3g.20gb": 2})  # 3, 4
    assert bed.field(NODE, "Gres") == "gpu:a100_3g.20gb:2"
    assert "Gres=gpu:a100_3g.20gb:2" in (bed.etc / "slurm.conf").read_text()  # 5
    text = (bed.etc / "gres.conf").read_text()
    assert text.count("MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap") == 2
    assert "nvidia-cap1," not in text
    assert f"{NODE} registered with gpu:a100_3g.20gb:2" in done.err  # 6: slurmctld knows it, too
    assert f"{NODE} takes jobs again" in done.err  # 7
    assert not watch.lies
    assert not watch.invalid
    assert watch.shown[-1] == Counter({"3g.20gb": 2})
    jobs.none_lost()


def test_what_is_wrong_in_the_guides_steps_is_reported_with_its_line(bed: Bed) -> None:
    page = bed.folder / "page.md"
    page.write_text(STEPS)
    reported = bed.aliquot("slurm", "check", "--script", str(page), "-o", "json")
    assert reported.code == 30
    found = [(f["line"], f["rule"]) for f in msgspec.json.decode(reported.out)["findings"]]
    assert found == [(1, "NO_REASON"), (3, "INSTANCE_IN_USE"), (6, "SLURMD_ALONE")]


@pytest.fixture
def containers(tmp_path: Path) -> Any:
    """Start a host with one A100 in seven instances, for ``aliquot docker``. It needs no container runtime."""
    env = {**os.environ, "ALIQUOT_STATE_DIR": str(tmp_path), "ALIQUOT_SIM": "n1", "ALIQUOT_BACKEND": "direct"}

    def aliquot(*words: str) -> Ran:
        done = forkserver.run(
            [sys.executable, "-m", "aliquot", *words], capture_output=True, text=True, env=env, timeout=60
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    assert aliquot("sim", "start", "a100-sxm4-40gb", "--name", "n1").code == 0
    assert aliquot("apply", "--gpu", "0", "--mig", "1g.5gb*7").code == 0
    yield aliquot
    aliquot("sim", "stop", "n1")


def test_docker_run_with_device_0_is_refused_with_what_there_is(containers: Any) -> None:
    # On a GPU with MIG, ``--gpus '"device=0"'`` could mean all instances or none: an index does not name an instance.
    legacy = ("--runtime", "docker", "--form", "legacy", "--no-reserve")
    refused = containers("docker", "run-args", "0", *legacy, "-o", "json")
    assert (refused.code, refused.out) == (20, "")
    error = refusal(refused.err)
    assert error["code"] == "BARE_INDEX"
    assert any("0:0" in line for line in (*error["details"], error["next"])), error
    listed = msgspec.json.decode(containers("docker", "list", "-o", "json").out)["devices"]
    by_index = {d["index"]: d["uuid"] for d in listed}
    assert len(by_index) == 7
    for word in ("0:1", by_index["0:1"]):
        assert containers("docker", "run-args", word, *legacy).out.split() == ["--gpus", f"device={by_index['0:1']}"]
    gone = containers("docker", "run-args", "MIG-00000000-0000-0000-0000-000000000000", *legacy, "-o", "json")
    assert gone.code in (2, 20)
    assert refusal(gone.err)["next"]


def test_the_guides_compose_file_with_a_device_that_is_there(containers: Any) -> None:
    words = ("inference-service=1g.5gb", "--image", "nvidia/cuda:11.0-base", "--form", "legacy", "--no-reserve")
    made = yaml.safe_load(containers("docker", "compose", *words, "--runtime", "docker").out)
    (device,) = made["services"]["inference-service"]["deploy"]["resources"]["reservations"]["devices"]
    uuids = {d["uuid"] for d in msgspec.json.decode(containers("docker", "list", "-o", "json").out)["devices"]}
    assert set(device["device_ids"]) < uuids
    assert device["capabilities"] == ["gpu"]
    assert "version" not in made, "Compose has removed that key"
