"""The cluster itself, on which all tests below depend."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from .bed import Bed, until
from .cgroups import missing
from .machine import Machine
from .release import Release

NODE = "CPUs=2 RealMemory=1000 Gres=gpu:a100_1g.5gb:1"
PARTITION = "PartitionName=all Nodes=ALL Default=YES"
DYNAMIC = "MaxNodeCount=4\nNodeSet=gpus Feature=mig\nPartitionName=all Nodes=gpus Default=YES"
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


def test_a_dynamic_node_is_deleted_and_registered_again(bed: Bed) -> None:
    bed.gpu_devices(0, 66, 67)
    bed.conf(DYNAMIC, gres=GRES)
    bed.controller()
    bed.dynamic("n1", f"{NODE} Feature=mig")
    assert "DYNAMIC_NORM" in bed.state("n1")
    bed.stop("n1")
    bed.ok("scontrol", "delete", "nodename=n1")
    assert bed.state("n1") == ""


def test_two_dynamic_nodes_live_on_one_host_and_both_run_jobs(bed: Bed) -> None:
    for gpu in (0, 1):
        bed.gpu_devices(gpu, 66 + 135 * gpu, 67 + 135 * gpu)
    other = GRES.replace("nvidia0", "nvidia1").replace("cap66", "cap201").replace("cap67", "cap202")
    bed.conf(DYNAMIC, gres=f"NodeName=n1 {GRES}NodeName=n2 {other}")
    bed.controller()
    for name in ("n1", "n2"):
        bed.dynamic(name, f"{NODE} Feature=mig")
    answer = bed.ok("srun", "-N2", "--gres=gpu:a100_1g.5gb:1", "printenv", "SLURMD_NODENAME")
    assert sorted(answer.split()) == ["n1", "n2"]
    until(lambda: bed.state("n2").startswith("IDLE+DYNAMIC"), "n2 never came to rest")
    bed.stop("n2")
    bed.ok("scontrol", "delete", "nodename=n2")
    job = bed.submit("srun printenv SLURMD_NODENAME", "--gres=gpu:a100_1g.5gb:1").out
    until(lambda: bed.job(job, "JobState") == "COMPLETED", lambda: f"job {job}: {bed.job(job, 'JobState')}")
    assert (bed.folder / "out" / job).read_text() == "n1\n"


def test_the_machine_itself_starts_no_program(release: Release) -> None:
    # ``close`` kills all programs, and the end of a program that the machine waits for would wake the machine.
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    machine = Machine(release, folder)
    try:
        assert machine.inhabitants() == []
    finally:
        machine.close()
        shutil.rmtree(folder)


def test_a_machine_is_closed_when_its_daemons_have_ended(release: Release) -> None:
    # A daemon that the kernel is still ending has left the machine, and ``close`` did not wait for it.
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(release, Path(folder))
        machine.daemons["late"] = late = subprocess.Popen(["sleep", "1"])
        machine.close()
        ended = late.returncode is not None
        late.wait()
    assert ended


def test_nothing_is_left_and_it_is_quick_while_jobs_run(bed: Bed) -> None:
    # The next bed and this host must not see leftover processes, mounts and control groups.
    if missing():
        pytest.skip(missing())
    bed.gpu_devices(0, 66, 67)
    bed.conf(f"{bed.node('n1', NODE)}\n{PARTITION}", gres=GRES, constrain=True)
    bed.controller()
    bed.slurmd("n1")
    job = bed.submit("sleep 60 & sleep 60", "--gres=gpu:a100_1g.5gb:1").out
    until(lambda: bed.job(job, "JobState") == "RUNNING", "the job never ran")
    until(lambda: bool(_trees(bed)), "the job is in no control group")
    asked = time.monotonic()
    bed.close()
    assert time.monotonic() - asked < 5
    assert not _trees(bed)
    assert str(bed.folder) not in Path("/proc/mounts").read_text()
    assert not _with(bed.folder)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_test_run_leaves_nothing_either(release: Release, sign: signal.Signals) -> None:
    # The process that runs the bed is ended in the middle with its process group, as ``timeout`` does. The machine then
    # ends itself, its daemons and its jobs.
    if missing():
        pytest.skip(missing())
    folder = Path(tempfile.mkdtemp(prefix="aliquot-slurm-", dir="/tmp"))
    script = """
import sys, time
from pathlib import Path
from system.slurm.bed import Bed
from system.slurm.release import Release
bed = Bed(Release(sys.argv[1], sys.argv[2]), Path(sys.argv[3]))
bed.conf(f"{bed.node('n1')}\\nPartitionName=all Nodes=ALL Default=YES", constrain=True)
bed.controller()
bed.slurmd("n1")
print(bed.submit("sleep 60").out, flush=True)
time.sleep(60)
"""
    words = [sys.executable, "-c", script, release.name, release.root, str(folder)]
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env, start_new_session=True) as run:
        assert run.stdout
        assert run.stdout.readline() == b"1\n"
        os.killpg(run.pid, sign)
    until(lambda: not _with(folder), lambda: f"these stay: {_with(folder)}")
    until(lambda: not list(Path("/sys/fs/cgroup").glob(f"*/{folder.name}")), "control groups stay")
    shutil.rmtree(folder)


def test_slurmrestd_answers_by_port_and_by_socket_with_a_token_alone(bed: Bed) -> None:
    bed.conf(f"{bed.node('n1')}\n{PARTITION}")
    bed.controller()
    rest = bed.rest()
    address = ("127.0.0.1", int(rest.url.rpartition(":")[2]))
    for version in ("v0.0.40", "v0.0.42") if bed.release.chrooted else ("v0.0.36", "v0.0.38"):
        for connection in (socket.create_connection(address), _unix(rest.socket)):
            with contextlib.closing(connection):
                assert _status(connection, version, rest.token) == 200, bed.log("slurmrestd")
        with contextlib.closing(_unix(rest.socket)) as connection:
            assert _status(connection, version, "wrong") >= 400


def _unix(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection


def _status(client_socket: socket.socket, version: str, token: str) -> int:
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = client_socket
    headers = {"X-SLURM-USER-NAME": "root", "X-SLURM-USER-TOKEN": token}
    connection.request("GET", f"/slurm/{version}/nodes", headers=headers)
    return connection.getresponse().status


def test_a_job_reaches_this_python_from_the_root_of_the_release(bed: Bed) -> None:
    bed.conf(f"{bed.node('n1')}\n{PARTITION}")
    bed.controller()
    bed.slurmd("n1")
    assert "aliquot" in bed.ok("srun", "aliquot", "--version")
    assert bed.ok("srun", "outside", sys.executable, "-c", "print(6 * 7)") == "42\n"


def _trees(bed: Bed) -> list[Path]:
    return list(Path("/sys/fs/cgroup").glob(f"*/{bed.folder.name}/slurm*"))


def _with(folder: Path) -> list[str]:
    """Return the processes whose command line or environment names a bed."""
    found = []
    for pid in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if pid.isdigit() and int(pid) != os.getpid():
                reported = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
                found += [pid] if str(folder).encode() in reported else []
    return found
