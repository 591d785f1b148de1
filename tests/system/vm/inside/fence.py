"""The device access of a Slurm job on control groups of version 2, where a BPF program in the kernel decides on each
open.

Slurm's daemons are as Debian has them, and ``aliquot slurm apply`` does the instances, the files and the restarts. No
driver is behind the device nodes: "No such device" means allowed, "Operation not permitted" means denied.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from system.vm.inside.checks import check, until
from system.vm.inside.machine import sh
from system.vm.inside.program import aliquot

PLACE = Path("/var/tmp/slurm")
HALF = "--gres=gpu:a100_3g.20gb:1"
CONF = f"""ClusterName=guest
SlurmctldHost=guest(127.0.0.1)
SlurmUser=root
AuthInfo=socket={PLACE}/munge/socket
StateSaveLocation={PLACE}/state
SlurmdSpoolDir={PLACE}/spool
SlurmctldPidFile={PLACE}/slurmctld.pid
SlurmdPidFile={PLACE}/slurmd.pid
SlurmctldLogFile={PLACE}/slurmctld.log
SlurmdLogFile={PLACE}/slurmd.log
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=120
GresTypes=gpu,nic
NodeName=n1 NodeHostname=guest NodeAddr=127.0.0.1 CPUs=1 RealMemory=500 Gres=gpu:a100:2
PartitionName=all Nodes=ALL Default=YES
"""
CGROUP = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainDevices=yes\n"
"""Create the slice by hand that systemd would create: it does not run in the guest."""
STOP = "if [ -e {0} ]; then kill $(cat {0}); fi; while [ -e {0} ]; do sleep 0.1; done"
PROBE = """#!/bin/sh
for each in /dev/nvidia[0-9]* /dev/nvidia-caps/*; do
  echo "$each $( (: <"$each") 2>&1)"
done
sed 's/^/cgroup /' /proc/self/cgroup
"""


def applied(*words: str, status: int = 0) -> str:
    """Run ``aliquot slurm apply`` on this host, which must end with that status, and return its output."""
    how = (
        "--slurmd-start",
        "slurmd -N n1",
        "--slurmd-stop",
        STOP.format(f"{PLACE}/slurmd.pid"),
        "--slurmctld-restart",
        f"{PLACE}/restart",
    )
    return aliquot("slurm", "apply", "--node-name", "n1", *how, "--dev-root", "/", *words, status=status)


def opened(*options: str) -> set[str]:
    """Return the device files that a job may open. All others are denied."""
    messages = [line.split(" ", 1) for line in sh("srun", *options, f"{PLACE}/probe").splitlines()]
    (group,) = (words for path, words in messages if path == "cgroup")
    assert group.startswith("0::/"), "the one hierarchy of version 2"
    assert "/job_" in group, group
    words = {path: words for path, words in messages if path != "cgroup"}
    yes = {path for path, words in words.items() if "No such device" in words}
    assert all("Operation not permitted" in words[path] for path in words.keys() - yes), words
    return yes


def slices() -> list[set[str]]:
    """Return the files of each MIG device in gres.conf."""
    rows = (line for line in (PLACE / "gres.conf").read_text().splitlines() if " Name=gpu " in line)
    files = [row.partition("MultipleFiles=")[2].split() for row in rows]
    return [set(words[0].split(",")) for words in files if words]


@check(150)
def a_job_opens_its_own_slice_alone() -> str:
    """Check that a job opens neither its neighbour's files, the other GPU's nor the capabilities of administrators. It
    runs as root.
    """
    for each in (*(PLACE / name for name in ("munge", "state", "spool")), Path("/sys/fs/cgroup/system.slice")):
        each.mkdir(parents=True, exist_ok=True)
    key = PLACE / "munge/key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    socket.sethostname("guest")
    sh("ip", "address", "add", "10.0.0.1/32", "dev", "lo")  # a host that has only 127.0.0.1 resolves no address
    for name, text in (("slurm.conf", CONF), ("gres.conf", ""), ("cgroup.conf", CGROUP)):
        (PLACE / name).write_text(text)
    for name, text in (
        ("probe", PROBE),
        ("restart", f"#!/bin/sh\n{STOP.format(f'{PLACE}/slurmctld.pid')}\nexec slurmctld\n"),
    ):
        (PLACE / name).write_text(text)
        (PLACE / name).chmod(0o755)
    os.environ |= {"SLURM_CONF": f"{PLACE}/slurm.conf", "ALIQUOT_SIM": "n1", "ALIQUOT_BACKEND": "direct"}
    files = [f"--{each}-file={PLACE}/munge/{each}" for each in ("pid", "log", "seed")]
    sh("munged", f"--key-file={key}", f"--socket={PLACE}/munge/socket", *files)
    sh("slurmctld")
    aliquot("sim", "start", "a100-sxm4-40gb*2", "--name", "n1")
    applied("--gpu", "0", "--mig", "3g.20gb*2")
    until(lambda: "idle" in sh("sinfo", "-h", "-o", "%T"), 30)
    assert opened(HALF) in slices()
    assert opened("--gres=gpu:a100:1") == {"/dev/nvidia1"}
    assert opened() == set()
    return Path("/sys/fs/cgroup/cgroup.controllers").read_text().strip()


@check(60)
def a_board_whose_devices_this_slurm_cannot_deny_is_refused() -> str:
    """Check that Slurm 22.05 gets no slot board here: the kernel would refuse its program, and no job would run. The
    daemons of the check before still run.
    """
    before = (PLACE / "gres.conf").read_text()
    answer = applied("--slots", "--gpu", "0", "--mig", "3g.20gb*2", status=20)
    assert "cannot deny jobs so many devices" in answer, answer
    assert (PLACE / "gres.conf").read_text() == before
    assert opened(HALF) in slices()
    return answer.splitlines()[0]
