"""Environment of tasks, job mappings for dcgm-exporter, and the jobs that count as holders."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from aliquot.core.model.claims import with_claims
from aliquot.errors import StorageError
from aliquot.slurm.files import gpu_numbering as numbering
from aliquot.slurm.files.gpu_numbering import Numbering
from aliquot.slurm.files.job_devices import GresDevice, offered_devices
from aliquot.slurm.holders import jobs as jobs_here
from aliquot.slurm.jobs import dcgm_mapping as dcgm
from aliquot.slurm.jobs import task_prolog as taskprolog
from support.slurmstate import sliced

NODE = sliced("3g.20gb@4", "1g.5gb@0", "1g.5gb@1")
KNOWN = Numbering.from_offered("n1", offered_devices(NODE))
"""Device 0 is 3g.20gb, 1 and 2 are 1g.5gb, and 3 is the other GPU as a whole."""

FENCED = {"SLURM_STEP_GPUS": "1", "CUDA_VISIBLE_DEVICES": "0"}


def opens(*mine: GresDevice) -> taskprolog.Opens:
    files = {file for d in mine for file in d.files}
    return lambda file: file in files


def everything(file: str) -> bool:
    return True


def test_the_ordinal_says_which_and_the_uuid_is_exported() -> None:
    reported = taskprolog.task_devices(FENCED, KNOWN, opens(KNOWN.devices[1]))
    assert reported.devices == (KNOWN.devices[1],)
    uuid = KNOWN.devices[1].uuid
    assert taskprolog.exports(reported.devices, KNOWN) == (
        f"export CUDA_VISIBLE_DEVICES={uuid}",
        f"export NVIDIA_VISIBLE_DEVICES={uuid}",
    )


def test_without_a_fence_the_ordinals_hold() -> None:
    reported = taskprolog.task_devices({"SLURM_STEP_GPUS": "0,3"}, KNOWN, everything)
    assert [d.gpu for d in reported.devices] == [0, 1]
    assert taskprolog.exports(reported.devices, KNOWN)[0].endswith(f"{KNOWN.devices[0].uuid},{KNOWN.devices[3].uuid}")


def test_the_fence_corrects_numbers_that_are_out_of_order() -> None:
    reported = taskprolog.task_devices(FENCED, KNOWN, opens(KNOWN.devices[0]))
    assert reported.devices == (KNOWN.devices[0],)
    unsure = taskprolog.task_devices(FENCED, KNOWN, opens(KNOWN.devices[0], KNOWN.devices[2]))
    assert unsure.devices == ()
    assert "gres.conf of n1" in unsure.error


def test_a_task_without_numbers_has_what_it_can_open() -> None:
    # Slurm 22.05 with --gpus-per-task and a type sets no variable.
    assert taskprolog.task_devices({}, KNOWN, opens(*KNOWN.devices[:2])).devices == KNOWN.devices[:2]
    assert taskprolog.task_devices({}, KNOWN, everything).devices == ()


def test_a_bound_task_has_its_own_of_the_steps_devices() -> None:
    reported = taskprolog.task_devices({"SLURM_STEP_GPUS": "2"}, KNOWN, opens(*KNOWN.devices[1:3]))
    assert reported.devices == (KNOWN.devices[2],)


def test_whole_gpus_are_left_to_slurm_where_there_is_no_mig() -> None:
    whole = Numbering("n1", (KNOWN.devices[3],))
    assert taskprolog.exports(taskprolog.task_devices({"SLURM_STEP_GPUS": "0"}, whole, everything).devices, whole) == ()


def test_detected_devices_are_in_an_order_of_slurmds_own() -> None:
    detected = Numbering.from_offered("n1", offered_devices(NODE), "nvml")
    assert detected.devices_at((0,)) == ()
    assert taskprolog.uuids({"CUDA_VISIBLE_DEVICES": "MIG-1,MIG-2"}) == ("MIG-1", "MIG-2")
    assert taskprolog.uuids({"CUDA_VISIBLE_DEVICES": "0,1"}) == taskprolog.uuids({}) == ()


def test_what_is_not_there_says_nothing(tmp_path: Path) -> None:
    assert taskprolog.may_open("/dev/null")
    assert taskprolog.may_open(str(tmp_path / "gone"))


# Numbers on disk


def test_numbers_survive_a_round_and_bad_files_are_none(tmp_path: Path) -> None:
    folder = str(tmp_path / "run")
    path = numbering.write(KNOWN, folder)
    assert numbering.read("n1", folder) == KNOWN
    assert os.stat(path).st_mode & 0o777 == 0o644
    assert os.listdir(folder) == ["n1.json"]
    for text in ("", "{", '{"node": 7}', '{"node": "n1", "devices": [{}]}'):
        Path(path).write_text(text)
        assert numbering.read("n1", folder) is None
        assert numbering.read_all(folder) == ()
    with pytest.raises(StorageError, match="cannot write"):
        numbering.write(KNOWN, "/dev/null/x")


# dcgm-exporter


def test_files_are_named_as_the_exporter_reads_them(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert dcgm.begin("12", (KNOWN.devices[0], KNOWN.devices[3]), folder) == ("0.1", "1")
    dcgm.begin("13", (KNOWN.devices[3],), folder)
    dcgm.begin("13", (KNOWN.devices[3],), folder)
    assert (tmp_path / "1").read_text() == "12\n13\n"
    assert dcgm.end("12", folder) == ("0.1", "1")
    assert dcgm.jobs(folder) == {"1": ("13",)}
    assert (tmp_path / "0.1").read_text() == ""  # emptied, not removed: a scrape may be about to read it


def test_bad_bytes_in_a_file_stop_no_prolog_and_no_epilog(tmp_path: Path) -> None:
    folder = str(tmp_path)
    (tmp_path / "1").write_bytes(b"\xff\n")
    dcgm.begin("13", (KNOWN.devices[3],), folder)
    assert dcgm.end("13", folder) == ("1",)
    dcgm.refresh({}, folder, now=os.stat(tmp_path / "1").st_mtime + 999)
    assert dcgm.jobs(folder) == {}


def test_processes_tell_what_slurm_did_not(tmp_path: Path) -> None:
    folder = str(tmp_path)
    dcgm.begin("12", KNOWN.devices[3:], folder)
    written = os.stat(tmp_path / "1").st_mtime
    assert dcgm.refresh({"13": KNOWN.devices[:2]}, folder, now=written + 5) == ("0.1", "0.2")
    assert dcgm.jobs(folder) == {"0.1": ("13",), "0.2": ("13",), "1": ("12",)}
    assert dcgm.refresh({"13": KNOWN.devices[:2]}, folder, now=written + 61) == ("1",)
    assert dcgm.refresh({}, folder, now=written + 999) == ("0.1", "0.2")
    assert dcgm.jobs(folder) == {}


def test_many_at_once_lose_nothing(tmp_path: Path) -> None:
    device = KNOWN.devices[3]
    (tmp_path / ".lock").touch(0o644)
    threads = [threading.Thread(target=dcgm.begin, args=(str(n), (device,), str(tmp_path))) for n in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert set(dcgm.jobs(str(tmp_path))["1"]) == {str(n) for n in range(20)}
    assert (tmp_path / ".lock").stat().st_mode & 0o777 == 0o600  # any user who can open it could hold the lock


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    for name in ("notes.txt", ".0", "0.1.bak"):
        (tmp_path / name).write_text("12\n")
    dcgm.end("12", str(tmp_path))
    assert {each.name: each.read_text() for each in tmp_path.iterdir() if each.name != ".lock"} == {
        "notes.txt": "12\n",
        ".0": "12\n",
        "0.1.bak": "12\n",
    }
    with pytest.raises(StorageError):
        dcgm.begin("1", KNOWN.devices, "/dev/null/x")


# Jobs on this host


def process(proc: Path, pid: int, **environ: str) -> None:
    """Add a process that the step daemon of the job in its environment has started, or one without a job."""
    job = environ.get("SLURM_JOB_ID", "")
    below = stepd(proc, 1000 + int(job), f"[{job}.0]") if job else 1
    plain(proc, pid, below, **environ)


def plain(proc: Path, pid: int, parent: int, owner: int = 1000, /, **environ: str) -> None:
    (proc / str(pid)).mkdir(parents=True)
    (proc / str(pid) / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in environ.items()))
    (proc / str(pid) / "status").write_text(f"Name:\tx\nPPid:\t{parent}\nUid:\t{owner}\t0\t0\t0\n")


def stepd(proc: Path, pid: int, title: str, owner: int = 0, program: str = "/usr/sbin/slurmstepd") -> int:
    if not (proc / str(pid)).exists():
        plain(proc, pid, 1, owner)
        (proc / str(pid) / "cmdline").write_bytes(f"slurmstepd: {title}".encode() + b"\0" * 40)
        (proc / str(pid) / "exe").symlink_to(program)
    return pid


def test_jobs_hold_what_their_processes_were_given(tmp_path: Path) -> None:
    run, proc = str(tmp_path / "run"), tmp_path / "proc"
    numbering.write(KNOWN, run)
    at = {"SLURMD_NODENAME": "n1"}
    process(proc, 10, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", SLURM_JOB_USER="ada", **at)
    process(proc, 11, SLURM_JOB_ID="7", SLURM_STEP_GPUS="0", CUDA_VISIBLE_DEVICES=KNOWN.devices[0].uuid, **at)
    process(proc, 12, SLURM_JOB_ID="9", CUDA_VISIBLE_DEVICES=KNOWN.devices[2].uuid, **at)
    process(proc, 13, SLURM_JOB_ID="10", **at)  # without a GPU
    process(proc, 14, SLURM_JOB_ID="11", SLURM_JOB_GPUS="1")  # salloc's shell: not a child of a slurmd here
    process(proc, 15, PATH="/bin")
    (proc / "16").mkdir()
    (proc / "self").mkdir()
    found = jobs_here.claims(NODE.gpus, run, str(proc))
    assert [(str(c.holder), c.devices) for c in found] == [
        ("job slurm:7 (ada)", (KNOWN.devices[0].uuid,)),
        ("job slurm:9", (KNOWN.devices[2].uuid,)),
    ]
    instances = with_claims(NODE, found).gpus[0].instances
    assert [i.held for i in instances] == [True, False, True]
    present = jobs_here.devices_by_job(run, str(proc))
    assert present == {"7": KNOWN.devices[:1], "9": KNOWN.devices[2:3], "10": ()}


def test_a_job_with_unknown_gres_holds_all(tmp_path: Path) -> None:
    process(tmp_path / "proc", 10, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", SLURMD_NODENAME="n1")
    for prepare in (lambda: None, lambda: numbering.write(Numbering("n1", ()), str(tmp_path / "run"))):
        prepare()
        found = jobs_here.claims(NODE.gpus, str(tmp_path / "run"), str(tmp_path / "proc"))
        assert set(found[0].devices) == {g.uuid for g in NODE.gpus}
    assert jobs_here.claims(NODE.gpus, str(tmp_path / "run"), str(tmp_path / "proc"), simulated=True) == ()


def test_only_the_gpus_that_were_asked_about(tmp_path: Path) -> None:
    numbering.write(KNOWN, str(tmp_path / "run"))
    process(tmp_path / "proc", 10, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", SLURMD_NODENAME="n1")
    assert jobs_here.claims(NODE.gpus[1:], str(tmp_path / "run"), str(tmp_path / "proc")) == ()
    assert jobs_here.claims(NODE.gpus, str(tmp_path / "run"), str(tmp_path / "none")) == ()


def test_what_stands_at_the_end_of_a_large_environment_counts_too(tmp_path: Path) -> None:
    numbering.write(KNOWN, str(tmp_path / "run"))
    large = {"HUGE": "x" * 100_000}
    process(tmp_path / "proc", 10, **large, SLURM_JOB_ID="7", SLURM_JOB_GPUS="0", SLURMD_NODENAME="n1")
    assert len(jobs_here.claims(NODE.gpus, str(tmp_path / "run"), str(tmp_path / "proc"))) == 1


def test_a_simulated_node_has_only_the_jobs_of_its_own_environment(tmp_path: Path) -> None:
    run, proc = str(tmp_path / "run"), tmp_path / "proc"
    numbering.write(KNOWN, run)
    for pid, ordinal, framework in ((10, "0", os.readlink("/proc/self/ns/mnt")), (11, "1", "mnt:[1]")):
        process(proc, pid, SLURM_JOB_ID=str(pid), SLURM_JOB_GPUS=ordinal, SLURMD_NODENAME="n1")
        (proc / str(pid) / "ns").mkdir()
        (proc / str(pid) / "ns/mnt").symlink_to(framework)
    assert len(jobs_here.claims(NODE.gpus, run, str(proc))) == 2
    found = jobs_here.claims(NODE.gpus, run, str(proc), simulated=True)
    assert [c.holder.id for c in found] == ["slurm:10"]


# Environment variables that users can set

AT = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "n1", "SLURM_JOB_USER": "ada"}


def read_devices(tmp_path: Path) -> list[tuple[str, tuple[str, ...]]]:
    numbering.write(KNOWN, str(tmp_path / "run"))
    found = jobs_here.claims(NODE.gpus, str(tmp_path / "run"), str(tmp_path / "proc"))
    return [(str(c.holder), c.devices) for c in found]


def test_a_process_below_no_step_holds_nothing(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    plain(proc, 10, 1, **AT, SLURM_JOB_GPUS="0,1,2,3")
    plain(proc, 11, stepd(proc, 20, "[7.0]", owner=1234), **AT, SLURM_JOB_GPUS="0,1,2,3")  # its own "slurmstepd"
    plain(proc, 12, stepd(proc, 21, "[7.0]", program="/home/eve/sudo"), **AT, SLURM_JOB_GPUS="0")
    plain(proc, 13, stepd(proc, 22, "no step"), **AT, SLURM_JOB_GPUS="0")
    plain(proc, 14, 15, **AT, SLURM_JOB_GPUS="0")
    plain(proc, 15, 14, **AT, SLURM_JOB_GPUS="0")
    assert read_devices(tmp_path) == []
    assert jobs_here.devices_by_job(str(tmp_path / "run"), str(proc)) == {}


def test_a_process_speaks_for_no_other_job(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    below = stepd(proc, 20, "[9.batch]", program="/usr/sbin/slurmstepd (deleted)")
    plain(proc, 21, below)
    plain(proc, 22, 21, **AT, SLURM_JOB_GPUS="0")
    plain(proc, 23, stepd(proc, 24, "[30+2.0]"), **AT, SLURM_JOB_GPUS="1")
    assert [who for who, _ in read_devices(tmp_path)] == ["job slurm:9 (ada)", "job slurm:32 (ada)"]
    assert sorted(jobs_here.devices_by_job(str(tmp_path / "run"), str(proc)), key=int) == ["9", "32"]


def test_a_node_name_leads_nowhere_else(tmp_path: Path) -> None:
    # A user's file would choose the devices, and a pipe would block the read forever.
    numbering.write(KNOWN, str(tmp_path / "mine"))
    os.mkfifo(tmp_path / "pipe.json")
    for n, name in enumerate(("../mine/n1", f"{tmp_path}/mine/n1", f"{tmp_path}/pipe", ".")):
        process(tmp_path / "proc", 10 + n, **{**AT, "SLURMD_NODENAME": name, "SLURM_JOB_ID": str(40 + n)})
        assert numbering.read(name, str(tmp_path / "run")) is None
    assert read_devices(tmp_path) == []


@pytest.mark.parametrize("gpus", ["0-99999999999", "0-999999," * 1000, "9" * 5000, "\u00b2", "0-\u00b2", "5-1", "-"])
def test_numbers_without_end_or_sense_are_none(tmp_path: Path, gpus: str) -> None:
    process(tmp_path / "proc", 10, **AT, SLURM_STEP_GPUS=gpus)
    assert read_devices(tmp_path) == []


def test_a_name_gives_a_terminal_no_orders(tmp_path: Path) -> None:
    process(tmp_path / "proc", 10, **{**AT, "SLURM_JOB_USER": "\x1b[2Jroot\n" + "x" * 500}, SLURM_JOB_GPUS="0")
    assert [who for who, _ in read_devices(tmp_path)] == [f"job slurm:7 ([2Jroot{'x' * 55})"]
