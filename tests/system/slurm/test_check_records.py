"""Findings about CLOUD nodes and cores, compared with what the real Slurm makes of the same files."""

from __future__ import annotations

import msgspec

from .applying import Host
from .bed import Bed, until

PARTITION = "PartitionName=all Nodes=ALL Default=YES"


def reported(bed: Bed, host: Host | None, *words: str) -> list[str]:
    """Return severity and rule of each finding, except those of every bed (jobs that are not fenced)."""
    typed = ["slurm", "check", "--conf-dir", str(bed.etc), "--slurm-version", bed.release.name, "-o", "json", *words]
    done = host.run(*typed) if host else bed.aliquot(*typed)
    assert done.code in (0, 30), done
    found = msgspec.json.decode(done.out)["findings"]
    return [f"{f['severity']} {f['rule']}" for f in found if f["rule"] not in ("OPEN_DEVICES", "NO_TASK_PROLOG")]


def test_a_cloud_node_whose_lines_have_no_files_is_invalid_when_it_registers(bed: Bed) -> None:
    resume = bed.folder / "resume.sh"
    resume.write_text(f'#!/bin/sh\nexec slurmd -b -N "$1" -L {bed.logs}/"$1".log\n')
    resume.chmod(0o755)
    power = f"ResumeProgram={resume}\nSuspendProgram=/bin/true\nSuspendTime=600\nResumeTimeout=60\nSuspendTimeout=5"
    node = bed.node("c1", "CPUs=1 RealMemory=1000 State=CLOUD Gres=gpu:a100:2")
    bed.conf(f"{node}\n{PARTITION}", more=power, gres="NodeName=c1 Name=gpu Type=a100 Count=2\n")
    assert reported(bed, None, "--files-only") == ["error CLOUD_NO_FILE"]
    bed.controller()
    bed.submit("true", "--gres=gpu:a100:1")
    until(lambda: "INVALID_REG" in bed.state("c1"), lambda: bed.state("c1"), 60)


def test_cores_that_a_node_lacks(bed: Bed) -> None:
    # 22.05 ignores them and reports it only in its log. 24.11 sets the node INVALID.
    bed.gpu_devices(0)
    cores = {"n1": "0-1", "n2": "2", "n3": "0,7", "n4": "x"}
    nodes = [bed.node(name, "CPUs=2 RealMemory=1000 Gres=gpu:1") for name in cores]
    lines = [f"NodeName={name} Name=gpu File=/dev/nvidia0 Cores={each}\n" for name, each in cores.items()]
    bed.conf("\n".join([*nodes, PARTITION]), gres="".join(lines))
    done = bed.aliquot("slurm", "check", "--conf-dir", str(bed.etc), "--files-only", "-o", "json")
    bad = [f for f in msgspec.json.decode(done.out)["findings"] if f["rule"] == "BAD_CORES"]
    assert [f["line"] for f in bad] == [2, 3, 4]
    bed.controller()
    for name in cores:
        bed.start(name, "slurmd", "-D", "-N", name)
    until(lambda: all("INVALID_REG" in bed.state(n) or bed.registered(n) for n in cores), "not all registered")
    old = bed.release.name == "22.05"
    for name in ("n2", "n3"):
        assert ("INVALID_REG" in bed.state(name)) != old, bed.state(name)
        shown = f"invalid GRES core specification ({cores[name]}) on node {name}"
        assert shown in bed.log("slurmctld")
    assert "IDLE" in bed.state("n1")
    assert bed.field("n4", "Gres") == "gpu:1(S:0)", "a word that is not a number is core 0"
