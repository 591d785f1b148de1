"""Shell commands that stop slurmd: one that leaves it running is an error before anything is changed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.slurm.node import slurmd
from aliquot.slurm.node.request import SlurmNodeSettings

Start = Callable[[str], subprocess.Popen[bytes]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmNodeSettings:
    monkeypatch.setattr(slurmd, "END_S", 0.2)
    (tmp_path / "slurm.conf").write_text(f"ClusterName=c\nSlurmdPidFile={tmp_path}/%n.pid\n")
    return SlurmNodeSettings("n1", str(tmp_path), start="true", stop="true")


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a process with these words as its command line, in n1's file of process ids."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(words: str) -> subprocess.Popen[bytes]:
        name, *rest = words.split()
        line = [name, "-c", "read -r _", *rest]
        begun.append(subprocess.Popen(line, executable=shutil.which("bash"), stdin=subprocess.PIPE))
        (tmp_path / "n1.pid").write_text(f"{begun[-1].pid}\n")
        return begun[-1]

    yield start
    for each in begun:
        each.communicate()


@pytest.mark.parametrize(
    "words", ["slurmd -N n1", "/usr/sbin/slurmd -Nn1 -D", "slurmd"], ids=["named", "joined", "unnamed"]
)
def test_a_slurmd_that_still_runs_is_an_error_with_a_command_that_stops_it(
    settings: SlurmNodeSettings, started: Start, words: str, tmp_path: Path
) -> None:
    process = started(words)
    with pytest.raises(BlockedError, match=f"slurmd of n1 still runs \\(process {process.pid}\\)") as caught:
        slurmd.SlurmdCommands(settings).stop()
    assert caught.value.details[0] == "true"
    assert f"$(cat {tmp_path}/n1.pid " in str(caught.value.next_step)


@pytest.mark.parametrize("words", ["slurmd -N n2", "slurmd -D -Nn2", "slurmstepd -N n1", "sleep"])
def test_a_process_of_another_node_or_program_does_not_count(
    settings: SlurmNodeSettings, started: Start, words: str
) -> None:
    started(words)
    slurmd.SlurmdCommands(settings).stop()


def test_a_slurmd_that_ends_a_moment_later_has_ended(
    settings: SlurmNodeSettings, started: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = started("slurmd -N n1")
    stop = f"(sleep 0.1; kill {process.pid}) >/dev/null 2>&1 &"
    monkeypatch.setattr(slurmd, "END_S", 20.0)
    slurmd.SlurmdCommands(replace(settings, stop=stop)).stop()


@pytest.mark.parametrize("text", ["", "nothing\n", "4194303\n"])
def test_a_file_without_a_process_means_that_none_runs(settings: SlurmNodeSettings, tmp_path: Path, text: str) -> None:
    slurmd.SlurmdCommands(settings).stop()
    (tmp_path / "n1.pid").write_text(text)
    slurmd.SlurmdCommands(settings).stop()
    (tmp_path / "slurm.conf").unlink()
    assert slurmd.pid_file(settings) == slurmd.PID_FILE
