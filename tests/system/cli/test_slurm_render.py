"""``aliquot slurm render``, ``task-prolog`` and ``dcgm`` without a Slurm: arguments, files, errors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import pytest

from aliquot.cli.slurm.table_render import RENDER
from aliquot.slurm.files import gres_conf as gres
from aliquot.slurm.gpus import cores
from aliquot.slurm.gpus import gres_types as types

from .conftest import Run, Sim
from .test_golden import compare, transcript
from .test_startup import HEAVY, imported

RENDERED = ("slurm", "render", "--node-name", "n1")


@pytest.fixture
def cut(mixed: Sim, monkeypatch: pytest.MonkeyPatch) -> Sim:
    """Set up an A30 in four, an H100 in two with one shared, an RTX PRO 6000 in MIG mode and empty, and a T4."""
    monkeypatch.setenv("ALIQUOT_SLURMD", "/nonexistent/slurmd")
    mixed.node.set_mode(0, True)
    for start in range(4):
        mixed.node.create(0, "1g.6gb", start)
    mixed.node.set_mode(1, True)
    mixed.node.create(1, "3g.40gb", 4)
    mixed.node.set_mode(2, True)
    return mixed


def test_what_people_read(run: Run, cut: Sim) -> None:
    render = "slurm render --node-name n1"
    compare(
        "slurm-render",
        *transcript(
            run,
            render,
            f"{render} --part gres --type-style full --autodetect off --env none",
            f"{render} --part nodes --type-style profile --feature mig --feature ib",
            f"{render} --part slurm --gpu 0 --task-prolog /etc/slurm/task-prolog.sh",
            f"{render} --part dynamic --gpu 3",
            f"{render} --autodetect nvml",
            f"{render} --autodetect nvml --gpu 0",
            f"{render} --autodetect full --slurm-version 24.11",
            f"{render} --check always",
            f"{render} --slurm-version new",
            "slurm render --node-name n1,n2",
        ),
    )


def test_the_document_has_it_all(run: Run, cut: Sim) -> None:
    found = run(*RENDERED, "-o", "json").document
    assert (found["kind"], found["checkedBySlurmd"]) == ("SlurmFiles", False)
    node = found["nodes"][0]
    assert node["gres"] == "gpu:a30_1g.6gb:4,gpu:h100_80gb_hbm3_3g.40gb:1,gpu:tesla_t4:1,nic:no_consume:1"
    assert [d["uuid"][:4] for d in node["devices"]] == ["MIG-"] * 5 + ["GPU-"]
    assert tuple(found["gresConf"]) == tuple(node["gresConf"])
    assert len(node["gresConf"]) == 7
    assert node["gresConf"][-1].startswith("NodeName=n1 Name=nic MultipleFiles=/dev/nvidia2,")
    assert found["slurmConf"][0] == "GresTypes=gpu,nic"
    bare = run(*RENDERED, "--fence", "never", "-o", "json").document
    assert (bare["slurmConf"][0], len(bare["gresConf"])) == ("GresTypes=gpu", 6)


def test_a_whole_inventory_is_several_nodes(run: Run, cut: Sim, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(run("show", "-o", "json").out)
    (tmp_path / "b.yaml").write_text(run("show", "-o", "yaml").out)
    cut_here = run(*RENDERED, "--part", "gres").out
    os.environ.pop("ALIQUOT_SIM")
    many = run("slurm", "render", "c1=a.json", "c2=b.yaml", "a.json", "--part", "gres")
    assert many.code == 0
    assert many.out == cut_here.replace("NodeName=n1", "NodeName=c[1-2],mixed")


def test_every_fault_of_every_file_is_reported_at_once(run: Run, cut: Sim, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(run("show", "-o", "json").out)
    (tmp_path / "half.json").write_text(run("show", "-o", "json").out[:200])
    (tmp_path / "other.json").write_text('{"kind": "Plan"}')
    (tmp_path / "wrong.json").write_text('{"kind": "Inventory", "node": "x", "gpus": [{"pci": 7}]}')
    os.environ.pop("ALIQUOT_SIM")
    done = run("slurm", "render", "a.json", "mixed=a.json", "half.json", "other.json", "wrong.json")
    assert done.code == 2
    assert done.out == ""
    for words in (
        "half.json:",
        "other.json:1: this is not an inventory",
        "wrong.json:1: Expected `str`",
        "mixed: 2 files",
    ):
        assert words in done.err
    refusals: tuple[tuple[str, ...], ...] = (
        ("nothere.json",),
        ("a.json", "--gpu", "0"),
        ("a.json", "--number"),
        ("a.json", "--make-devices"),
        ("bad,name=a.json",),
        ("a.json", "--feature", "a b"),
        ("a.json", "--feature", "a,b"),
        ("a.json", "--task-prolog", "/x #y"),
        ("a.json", "--dev-root", "/a,b"),
    )
    for refusal in refusals:
        refused = run("slurm", "render", *refusal)
        assert (refused.code, refused.out) == (2, ""), refusal


def test_choices_are_those_of_the_code() -> None:
    offered = {o.destination: o.choices for o in RENDER.options}
    assert offered["type_style"] == types.STYLES
    assert offered["autodetect"] == get_args(gres.AutoDetect)
    assert offered["env"] == get_args(gres.JobEnvironment)
    assert offered["cores"] == cores.CHOICES


# Slurm's scripts call these


@pytest.mark.skipif(os.geteuid() != 0, reason="device nodes need root")
def test_device_nodes_that_a_boot_took_are_made_once(run: Run, cut: Sim, tmp_path: Path) -> None:
    whole = (*RENDERED, "--gpu", "0", "--make-devices", "--dev-root", str(tmp_path), "--part", "gres")
    words = (*whole, "--fence", "never")
    first = run(*words)
    named = {path for line in first.out.split() if line.startswith("MultipleFiles=") for path in line[14:].split(",")}
    assert len(named) == 9, "the GPU, and two capabilities for each of four instances"
    assert {Path(path).is_char_device() for path in named} == {True}
    assert not {f"{tmp_path}/dev/nvidia-caps/nvidia-cap{minor}" for minor in (1, 2)} & named
    assert first.err.count("created /dev/") == 10
    assert "created" not in run(*words).err
    fence = next(line for line in run(*whole).out.split("\n") if "Name=nic" in line)
    files = fence.partition("MultipleFiles=")[2].split(",")
    assert {f"{tmp_path}/dev/nvidia{n}" for n in (1, 2, 3)} < set(files)
    assert {Path(path).is_char_device() for path in files} == {True}


@pytest.fixture
def numbered(run: Run, cut: Sim, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Write the numbers of n1 to disk and return the UUIDs in their order."""
    monkeypatch.setenv("ALIQUOT_SLURM_RUN", str(tmp_path / "run"))
    monkeypatch.setenv("DCGM_HPC_JOB_MAPPING_DIR", str(tmp_path / "dcgm"))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    for name in ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_JOB_ID", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    found = run("slurm", "render", "--number", "-o", "json")
    assert f"wrote {tmp_path}/run/n1.json" in found.err
    return [d["uuid"] for d in found.document["nodes"][0]["devices"]]


def test_a_task_gets_its_uuids(run: Run, numbered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_STEP_GPUS", "4,0")
    both = f"{numbered[4]},{numbered[0]}"
    done = run("slurm", "task-prolog")
    assert done.out == f"export CUDA_VISIBLE_DEVICES={both}\nexport NVIDIA_VISIBLE_DEVICES={both}\n"
    assert run("slurm", "task-prolog", "-o", "json").document["uuids"] == [numbered[4], numbered[0]]


def test_a_task_runs_whatever_is_unknown(run: Run, numbered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("slurm", "task-prolog") == (0, "", "")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-by-slurm-itself")
    monkeypatch.setenv("SLURM_STEP_GPUS", "0")
    assert run("slurm", "task-prolog") == (0, "", "")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    done = run("slurm", "task-prolog")
    assert (done.code, done.out) == (0, "")
    assert "aliquot slurm render --number" in done.err


def test_a_task_prolog_is_quick() -> None:
    names = imported("slurm", "task-prolog")
    assert not HEAVY & names
    assert not {
        n for n in names if n.startswith(("aliquot.hardware", "aliquot.core.planner", "aliquot.core.engine", "yaml"))
    }


def test_jobs_come_and_go(run: Run, numbered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    assert run("slurm", "dcgm", "begin") == (0, "", "")  # a job without GPUs
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,5")
    assert run("slurm", "dcgm", "begin", "-o", "json").document["changed"] == ["0.3", "3"]
    monkeypatch.setenv("SLURM_JOB_ID", "13")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", numbered[5])
    assert run("slurm", "dcgm", "begin").code == 0
    assert run("slurm", "dcgm", "list").out == "0.3  12\n3  12 13\n"
    assert run("slurm", "dcgm", "end").code == 0
    assert run("slurm", "dcgm", "list", "-o", "json").document["jobs"] == {"0.3": ["12"], "3": ["12"]}


def test_a_prolog_that_cannot_tell_says_so(run: Run, numbered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("slurm", "dcgm", "begin").code == 2
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_JOB_GPUS", "0,99")
    unknown = run("slurm", "dcgm", "begin")
    assert (unknown.code, "does not match gres.conf" in unknown.err) == (20, True)
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    assert run("slurm", "dcgm", "begin").code == 20
    monkeypatch.setenv("DCGM_HPC_JOB_MAPPING_DIR", "/dev/null/x")
    assert run("slurm", "dcgm", "end").code == 20
