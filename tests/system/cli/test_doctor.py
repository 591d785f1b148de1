"""``aliquot doctor``: each problem gets a line, a command to run next, and exit code 20."""

from __future__ import annotations

import asyncio
import os
import socket
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import pytest

from aliquot.cli.doctor import cluster_checks, host_checks, runtime_checks, software_checks
from aliquot.cli.framework import target_node
from aliquot.core.engine.ports import JournalEntry
from aliquot.errors import NoDriverError
from aliquot.foundation.paths import directories
from aliquot.hardware.state.journal import FileJournal
from aliquot.hardware.state.journal_reader import JOURNAL
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.node.connect import connect

from .conftest import Result, Run, Sim
from .test_wait_for_lock import Holder, holder

__all__ = ["holder"]


@pytest.fixture(autouse=True)
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a host without runtimes and without a compiler. Returns its folder of programs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("SLURM_CONF", "DOCKER_HOST", "CONTAINER_HOST", "CC"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(runtime_checks, "KUBELET", str(tmp_path / "kubelet.sock"))
    monkeypatch.setattr(runtime_checks, "SOCKETS", (str(tmp_path / "libvirt-sock"),))
    monkeypatch.setattr("aliquot.cli.slurm.render_sources._FOLDERS", ())
    return programs


@pytest.fixture
def host(a100: Sim, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this host one with the GPUs of ``a100``."""
    with connect(a100.name) as connection:
        inventory = connection.backend.read()
    monkeypatch.delenv("ALIQUOT_SIM")
    monkeypatch.setattr(target_node, "inventory", lambda args: inventory)
    monkeypatch.setattr(host_checks, "_writable", lambda folder: True)


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def doctor(run: Run, *words: str) -> tuple[Result, dict[str, dict[str, Any]]]:
    """Return the result, and for each check the most severe finding."""
    result = run("doctor", "-o", "json", *words)
    found: dict[str, dict[str, Any]] = {}
    for each in result.document["findings"]:
        if each["check"] not in found or each["status"] == "problem":
            found[each["check"]] = each
    assert result.document["fine"] == (result.code == 0)
    return result, found


def test_a_host_without_problems(a100: Sim, run: Run) -> None:
    result, found = doctor(run)
    assert (result.code, found["DRIVER"]["status"]) == (0, "ok")
    assert {"LOCK", "JOURNAL", "STATE_DIRECTORY", "COMPILER"} <= set(found)
    text = run("doctor")
    assert text.code == 0
    assert "  ok       driver 580.65.06 answers" in text.out
    assert text.out.endswith("verdict: no problem\n")
    assert a100.writes() == []


def test_the_programs_of_this_host_do_not_concern_a_simulated_node(
    a100: Sim, run: Run, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare, "docker", "exit 1")
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    result, found = doctor(run)
    assert result.code == 0
    assert found["SIMULATED"]["message"].startswith(f"{a100.name} is a simulated node: ")
    assert found.keys().isdisjoint({"KUBELET", "DOCKER", "SLURM", "LIBVIRT"})


def test_programs_that_are_not_installed(host: None, run: Run) -> None:
    found = doctor(run)[1]
    assert {found[check]["status"] for check in ("KUBELET", "DOCKER", "PODMAN", "SLURM", "LIBVIRT")} == {"note"}
    assert found["DOCKER"]["message"] == "docker is not on this host"
    assert "SIMULATED" not in found


def test_a_driver_that_does_not_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(_: object) -> None:
        raise NoDriverError("no driver", next_step="aliquot sim start dgx-a100")

    monkeypatch.setattr(target_node, "inventory", absent)
    monkeypatch.setattr(host_checks, "_writable", lambda folder: True)
    result = run("doctor")
    assert result.code == 20
    assert "  problem  no driver\n  next     aliquot sim start dgx-a100\n" in result.out
    assert "verdict: 1 problem\n" in result.out
    assert "  note     no driver\n" in run("doctor", "--kubeconfig", "/nowhere").out


def test_mig_mode_that_is_pending(a100: Sim, run: Run) -> None:
    a100.node.hold(0, pid=4711)
    a100.node.set_mode(0, True)
    result, found = doctor(run)
    pci = a100.node.show()["gpus"][0]["pci"]
    assert (result.code, found["MIG_PENDING"]["next"]) == (20, f"nvidia-smi -r -i {pci}")


def test_directories_that_cannot_be_written(
    a100: Sim, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    folder = str(tmp_path / "file" / "below")
    monkeypatch.setattr(host_checks, "directories", lambda node: (folder, folder))
    result, found = doctor(run)
    assert (result.code, found["STATE_DIRECTORY"]["status"]) == (20, "problem")
    assert found["STATE_DIRECTORY"]["message"] == f"{folder} cannot be written"


def test_a_lock_that_is_held_for_long(a100: Sim, run: Run, holder: Holder) -> None:
    pid = holder(a100.name)
    result, found = doctor(run)
    assert (result.code, found["LOCK"]["status"]) == (0, "note")
    os.utime(os.path.join(directories(a100.name)[0], "lock"), (1.0, 1.0))
    result, found = doctor(run)
    assert (result.code, found["LOCK"]["status"], f"process {pid} (" in found["LOCK"]["message"]) == (
        20,
        "problem",
        True,
    )


def test_a_change_that_was_cut_off(a100: Sim, run: Run) -> None:
    assert run("apply", "--gpu", "0", "--mig", "3g.20gb").code == 0
    assert doctor(run)[1]["JOURNAL"]["status"] == "ok"
    command = ("aliquot", "apply", "--gpu", "0", "--mig", "empty")
    journal = FileJournal(os.path.join(directories(a100.name)[1], JOURNAL), "boot", command=command)
    journal.append(JournalEntry("begin", journal.new_run()), durable=True)
    journal.close()
    result, found = doctor(run)
    assert (result.code, found["JOURNAL"]["next"]) == (20, "aliquot apply --gpu 0 --mig empty")


def test_runtimes_that_do_not_answer(
    host: None, run: Run, bare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    assert doctor(run)[1]["DOCKER"]["status"] == "note"  # only its command line
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    program(bare, "virsh", "echo 'failed to connect' >&2; exit 1")
    monkeypatch.setenv("ALIQUOT_LIBVIRT", "virsh")
    (tmp_path / "libvirt-sock").touch()
    with socket.socket(socket.AF_UNIX) as kubelet:
        kubelet.bind(str(tmp_path / "kubelet.sock"))
    result, found = doctor(run)
    assert result.code == 20
    assert {name for name, each in found.items() if each["status"] == "problem"} == {"DOCKER", "KUBELET", "LIBVIRT"}
    assert found["DOCKER"]["next"] == "aliquot docker check --runtime docker"


def test_slurm_files_with_errors(host: None, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slurm.conf").write_text("ClusterName=c\nNodeName=n1 Gres=gpu:1\nPartitionName=p Nodes=n1\n")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    result, found = doctor(run)
    assert (result.code, found["SLURM_FILES"]["next"]) == (20, "aliquot slurm check")
    assert found["SLURMCTLD"]["status"] == "problem"


def test_packages_and_a_compiler_that_are_missing(
    a100: Sim, run: Run, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = metadata.version

    def without(name: str) -> str:
        if name == "httpx2":
            raise metadata.PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr(metadata, "version", without)
    result = run("doctor")
    assert result.code == 0
    assert "  note     httpx2 not installed: needed by agent" in result.out
    assert "  next     pip install 'aliquot[agent]'   # in a checkout: pip install '.[agent]'\n" in result.out
    assert "  note     no C compiler" in result.out
    program(bare, "cc", "true")
    assert doctor(run)[1]["COMPILER"]["status"] == "ok"


def test_every_extra_is_checked_and_explained() -> None:
    found = software_checks.packages_by_extra(metadata.requires("aliquot") or [])
    assert set(found) == set(software_checks._NEEDED_BY)
    assert "grpclib" in found["agent"]


def test_an_unknown_node_is_an_error(run: Run) -> None:
    result = run("doctor", "--sim", "nobody")
    assert (result.code, result.out) == (20, "")


def test_a_missing_kind_of_custom_resources_is_named() -> None:
    class Cluster:
        async def list(self, kind: Any, _namespace: str) -> tuple[Any, ...]:
            if kind.TYPE.plural == "vgpupools":
                raise NotFoundError("the server could not find the requested resource")
            return ()

    found = asyncio.run(cluster_checks._custom_resources(cast(Api, Cluster())))
    assert (found.status, found.message) == ("problem", "not installed: vgpupools.aliquot.dev")
