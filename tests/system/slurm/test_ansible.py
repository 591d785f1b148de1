"""The playbook of deploy/ansible on a real Slurm: its changes, no second change of the same thing, and its stops."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from . import cgroups
from .applying import Host, idle, running
from .bed import Bed
from .machine import until
from .playing import FOLDER, Play, missing, recap, two
from .release import OLD

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]


ROLE = pytest.mark.long(
    about=["deploy/ansible/", "tests/system/slurm/test_ansible.py", "tests/system/slurm/playing.py"]
)
"""Parts of the role beside its main flow."""

ONCE = pytest.mark.parametrize("release", [OLD], indirect=True)


def state(bed: Bed, *hosts: Host) -> dict[str, object]:
    """Return everything that a playbook might touch: files, GPUs, and what Slurm shows."""
    files = {}
    for folder in (bed.etc, bed.folder / "aliquot-etc", bed.folder / "scripts"):
        for path in sorted(folder.rglob("*")) if folder.exists() else ():
            if path.is_file():
                files[str(path)] = (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
    # Slurm itself gives up on a node whose slurmd was never started.
    shown = {h.name: bed.state(h.name).replace("+NOT_RESPONDING", "").rstrip("*") for h in hosts}
    slurm = {h.name: (shown[h.name], bed.field(h.name, "Gres"), bed.field(h.name, "Reason")) for h in hosts}
    return {"files": files, "gpus": {h.name: h.counts() for h in hosts}, "slurm": slurm}


def test_the_whole_flow_is_done_once_and_then_nothing_is_left_to_do(bed: Bed) -> None:
    if cgroups.missing():
        pytest.skip(cgroups.missing())
    hosts = n1, n2 = two(bed, constrain=True)
    play = Play(bed, *hosts, constrained=True)
    play.own["n1"]["aliquot_config"] = "small"
    play.own["n2"]["aliquot_config"] = "big"

    before = state(bed, *hosts)
    first = play.ok("--check")
    assert first["n1"]["failed"] == 0
    assert state(bed, *hosts) == before, "--check touches nothing"

    first = play.ok()
    assert first["n1"]["changed"] >= 2
    assert first["n2"]["changed"] >= 1
    assert n1.gres() == "gpu:a100_1g.5gb:14"
    assert n2.gres() == "gpu:a100_3g.20gb:4"
    assert idle(bed, "n1")
    assert idle(bed, "n2")
    one = ("srun", "-w", "n2", "--gres=gpu:a100_3g.20gb:1")
    reported = bed.run(*one, "printenv", "CUDA_VISIBLE_DEVICES", env=n2.env)
    assert reported.out.startswith("MIG-"), f"the TaskProlog is not in place: {reported}"
    assert "not permitted" in bed.ok(*one, "sh", "-c", "cat /dev/nvidia1 2>&1; true"), "the fence is up"

    until(lambda: "COMPLETING" not in bed.state("n2"), "srun's step does not end")
    after = state(bed, *hosts)
    again = play.ok()
    assert {name: row["changed"] for name, row in again.items()} == {"n1": 0, "n2": 0}
    assert state(bed, *hosts) == after

    text = (bed.etc / "slurm.conf").read_text()
    assert text.count("TaskProlog=") == 1
    assert text.index("TaskProlog=") < text.index("NodeName=n1")


@ROLE
def test_jobs_are_waited_for_and_a_node_that_fails_stops_the_rest(bed: Bed) -> None:
    hosts = n1, n2 = two(bed)
    play = Play(bed, *hosts, aliquot_config="big")
    assert play.ok()["n2"]["changed"] >= 1
    play.variables["aliquot_config"] = "small"

    job = bed.submit("sleep 4", "-w", "n1", "--gres=gpu:a100_3g.20gb:1").out
    running(bed, job)
    assert play.ok("--tags", "cut")["n1"]["changed"] == 1
    assert bed.job(job, "JobState") == "COMPLETED"
    assert bed.job(job, "Restarts") == "0"
    assert n1.gres() == n2.gres() == "gpu:a100_1g.5gb:14"

    job = bed.submit("sleep 600", "-w", "n1", "--gres=gpu:a100_1g.5gb:1").out
    running(bed, job)
    play.variables |= {"aliquot_config": "big", "aliquot_jobs": "refuse"}
    failed = play.run("--tags", "cut")
    assert failed.code != 0
    assert f"job {job}" in failed.out, failed.out
    assert "n1: " in failed.out
    assert "next: " in failed.out
    assert "n2" not in recap(failed), "no node after one that failed"
    assert bed.job(job, "JobState") == "RUNNING"
    assert n1.gres() == n2.gres() == "gpu:a100_1g.5gb:14"


@ROLE
@ONCE
def test_what_is_wrong_on_every_machine_is_reported_before_any_node_is_drained(bed: Bed) -> None:
    hosts = two(bed)
    play = Play(bed, *hosts, aliquot_config="smal")
    before = state(bed, *hosts)["slurm"]
    failed = play.run()
    assert failed.code != 0
    assert "smal" in failed.out
    assert "small" in failed.out
    assert state(bed, *hosts)["slurm"] == before
    with open(bed.etc / "slurm.conf", "a") as file:
        file.write("\ntaskprolog = /opt/ours.sh\n")
    play.variables["aliquot_config"] = "small"
    failed = play.run()
    assert failed.code != 0
    assert "has another TaskProlog: call" in failed.out
    assert state(bed, *hosts)["slurm"] == before


@ROLE
@ONCE
def test_lists_in_slurm_conf_are_added_to(bed: Bed) -> None:
    hosts = two(bed)
    path = bed.etc / "slurm.conf"
    path.write_text(path.read_text().replace("GresTypes=gpu", "grestypes = craynetwork"))
    placeholder = "NodeName=layouts CPUs=2 RealMemory=1000 Gres=gpu:a100_2g.10gb:3 State=FUTURE"
    play = Play(bed, *hosts[:1], aliquot_dcgm=True, aliquot_placeholder=placeholder, aliquot_reconfigure="true")
    play.ok("--tags", "files")
    text = path.read_text()
    assert "grestypes = gpu,craynetwork" in text
    assert "PrologFlags=Alloc\n" in text
    assert f"{placeholder}\nPartitionName" in text
    assert {row["changed"] for row in play.ok("--tags", "files").values()} == {0}


@ROLE
@ONCE
def test_a_node_of_some_gpus_gets_the_kind_of_gres_that_fences_it(bed: Bed) -> None:
    hosts = two(bed)
    path, done = bed.etc / "slurm.conf", bed.folder / "restarted"
    own = {"aliquot_apply_options": ["--capacity", "0"], "aliquot_constrain_devices": True}
    play = Play(bed, *hosts[:1], aliquot_reconfigure="true", aliquot_slurmctld_restart=f"touch {done}")
    play.own["n1"] |= own
    play.ok("--tags", "files")
    assert "GresTypes=nic,gpu\n" in path.read_text()
    assert done.exists(), "slurmctld of 22.05 reads it only at a restart"
    assert play.ok("--tags", "files")["n1"]["changed"] == 0
    path.write_text(path.read_text().replace("GresTypes=nic,gpu\n", ""))
    play.ok("--tags", "files")
    assert "GresTypes=gpu,nic\n" in path.read_text()


@ROLE
@ONCE
def test_scripts_of_slurmctld_are_installed_and_a_script_of_the_site_stays(bed: Bed) -> None:
    hosts = two(bed)
    own: dict[str, Any] = {"aliquot_wake": True, "aliquot_job_submit": True, "aliquot_slurmctld_restart": "true"}
    play = Play(bed, *hosts[:1], aliquot_reconfigure="true", **own)
    play.ok("--tags", "files")
    restart, shipped_restart = bed.folder / "scripts/slurmctld-restart.sh", FOLDER.parent / "slurm/slurmctld-restart.sh"
    assert restart.read_bytes() == shipped_restart.read_bytes()
    assert os.access(restart, os.X_OK)
    text = (bed.etc / "slurm.conf").read_text()
    wake = bed.folder / "scripts/slurmctld-wake.sh"
    assert f"EpilogSlurmctld={wake}\n" in text
    assert os.access(wake, os.X_OK)
    assert "JobSubmitPlugins=lua\n" in text
    lua, shipped = bed.etc / "job_submit.lua", (FOLDER.parent / "slurm/job_submit.lua").read_text()
    assert lua.read_text() == shipped
    assert play.ok("--tags", "files")["n1"]["changed"] == 0
    lua.write_text("-- rules of the site\n")
    failed = play.run("--tags", "files")
    assert failed.code != 0
    assert "job_submit.lua is yours" in failed.out
    assert lua.read_text() == "-- rules of the site\n"


def _wheel(folder: Path) -> Path:
    """Return Aliquot as a wheel, without a build. pip's own checks read the same data."""
    import zipfile

    import aliquot

    source, version = Path(aliquot.__file__).parent, aliquot.__version__
    info = f"aliquot-{version}.dist-info"
    path = folder / f"aliquot-{version}-py3-none-any.whl"
    script = Path(__file__).resolve().parents[3] / "scripts/aliquot"
    with zipfile.ZipFile(path, "w") as wheel:
        names = []
        for each in sorted(source.rglob("*")):
            if each.is_file() and "__pycache__" not in each.parts:
                names.append(f"aliquot/{each.relative_to(source)}")
                wheel.write(each, names[-1])
        for name, text in (
            (f"aliquot-{version}.data/scripts/aliquot", script.read_text()),
            (f"{info}/METADATA", f"Metadata-Version: 2.1\nName: aliquot\nVersion: {version}\n"),
            (f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"),
        ):
            names.append(name)
            wheel.writestr(name, text)
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in (*names, f"{info}/RECORD")))
    return path


@ROLE
@ONCE
def test_it_is_installed_in_the_version_that_is_pinned(bed: Bed) -> None:
    hosts = two(bed)
    venv, program = bed.folder / "opt", bed.folder / "usr-local-bin-aliquot"
    play = Play(bed, *hosts[:1], aliquot_install=True, aliquot_venv=str(venv), aliquot_program=str(program))
    failed = play.run("--tags", "files", "--limit", "n1")
    assert failed.code != 0
    assert "set aliquot_wheel to a wheel" in failed.out
    play.variables |= {
        "aliquot_wheel": str(_wheel(bed.folder)),
        "aliquot_pip_arguments": "--no-deps --no-index --no-compile",
        "aliquot_units": True,
        "aliquot_units_enabled": False,
        "aliquot_unit_dir": str(bed.folder / "units"),
        "aliquot_config": "small",
    }
    (bed.folder / "units").mkdir()
    # Its dependencies are those of this interpreter, so nothing is downloaded.
    play.own["n1"]["aliquot_environment"] |= {"PYTHONPATH": os.pathsep.join(p for p in _paths())}
    assert play.ok("--tags", "files", "--limit", "n1")["n1"]["changed"] >= 4
    assert os.path.realpath(program) == str(venv / "bin/aliquot")
    shipped = FOLDER.parent / "slurm/aliquot-slurm-node.service"
    unit = (bed.folder / "units/aliquot-slurm-node.service").read_text()
    assert unit == shipped.read_text().replace("/usr/local/bin/aliquot", str(program))
    assert (bed.folder / "units/aliquot-slurm-continue.service").is_file()
    assert play.ok("--tags", "files", "--limit", "n1")["n1"]["changed"] == 0


def _paths() -> list[str]:
    import msgspec

    return [str(Path(msgspec.__file__).resolve().parents[2])]
