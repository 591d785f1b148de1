"""Jobs of sacct: lines as 22.05 and 24.11 print them."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.errors import AliquotError, UsageError
from aliquot.slurm.client import bounded_program
from aliquot.slurm.client.errors import NoAccountingError, RefusedError
from aliquot.slurm.report.accounting import (
    AccountingJob,
    JobFilter,
    check_settings,
    counts_memory,
    parse_jobs,
    parse_memory,
    read_jobs,
)
from aliquot.slurm.report.window import Window

DONE = (
    "1|COMPLETED|1795835450|1795835451|1795835453|1795835456|5|"
    "billing=1,cpu=1,gres/gpu:a100_1g.5gb=1,gres/gpu=1,mem=1000M,node=1|"
    "billing=1,cpu=1,gres/gpu:a100_1g.5gb=1,gres/gpu=1,node=1"
)
UNTYPED = (
    "3|CANCELLED by 0|1795835450|Unknown|1795835455|1795835457|UNLIMITED|"
    "billing=1,cpu=1,gres/gpu=1,mem=1000M,node=1|billing=1,cpu=1,gres/gpu:a100_1g.5gb=1,gres/gpu=1,node=1"
)
RUNNING = (
    "6|RUNNING|1795835450|1795835450|1795835463|Unknown|30|cpu=1,gres/gpu:a100_3g.20gb=2,gres/gpu=3|"
    "cpu=1,gres/gpu:a100_3g.20gb=2,gres/gpu=3"
)
PENDING = "8|PENDING|1795835450|1795835450|Unknown|Unknown|1|cpu=1,gres/gpu:a100_1g.5gb=1,gres/gpu=1|"
WITHOUT = "7|COMPLETED|1795835450|1795835450|1795835460|1795835461|525600|billing=1,cpu=1|billing=1,cpu=1,node=1"


def test_each_kind_of_record() -> None:
    small = (("a100_1g.5gb", 1),)
    assert parse_jobs("\n".join([DONE, UNTYPED, RUNNING, PENDING, WITHOUT, ""])) == (
        AccountingJob(1, "COMPLETED", 1795835451, 1795835453, 1795835456, 300, small),
        AccountingJob(3, "CANCELLED", 1795835450, 1795835455, 1795835457, None, small),
        AccountingJob(6, "RUNNING", 1795835450, 1795835463, 0, 1800, (("", 1), ("a100_3g.20gb", 2))),
        AccountingJob(8, "PENDING", 1795835450, 0, 0, 60, small),
    )


def test_a_job_that_was_cancelled_before_it_got_devices_has_not_started() -> None:
    line = "9|CANCELLED by 0|1795835450|1795835450|1795835470|1795835470|1|gres/gpu=1|"
    assert [(each.start, each.devices) for each in parse_jobs(line)] == [(0, (("", 1),))]


@pytest.mark.parametrize("text", ["nonsense", DONE + "|more", "x" + DONE, "sacct: error: something\n" + DONE])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        parse_jobs(text)


@pytest.mark.parametrize("value", ["a b", "a,", "--user", "a;b", "a\nb", "a=b"])
def test_a_filter_takes_only_names(value: str) -> None:
    for chosen in (JobFilter(user=value), JobFilter(partition=value), JobFilter(account=value)):
        if value != "--user":
            with pytest.raises(UsageError):
                chosen.words()
    assert JobFilter("a,b-c", "p", "x.y").words() == ["--user=a,b-c", "--partition=p", "--account=x.y"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"AccountingStorageType": "accounting_storage/none"},
        {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageTRES": "cpu,mem,gres/gpumem"},
    ],
)
def test_a_cluster_that_does_not_account_for_gpus_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(NoAccountingError):
        check_settings(settings)
    check_settings({"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageTRES": "cpu,gres/gpu"})


def test_the_memory_of_a_job_is_that_of_its_largest_step() -> None:
    lines = ("7|", "7.batch|cpu=5,gres/gpumem=1048577,mem=9", "7.0|gres/gpumem=5368709120", "7.1|mem=1,gres/gpumem=3")
    rest = (
        "8.batch|cpu=5,mem=9",
        "9.0|gres/gpumem=0",
        "10.0|gres/gpumem=x",
        "11.0|gres/gpumem=12K",
        "x|gres/gpumem=4",
        "",
    )
    assert parse_memory("\n".join(lines + rest)) == {7: 5120}
    assert parse_memory("7.0|gres/gpumem=1048577") == {7: 2}


def test_slurm_measures_memory_only_where_it_gathers() -> None:
    tres = {"AccountingStorageTRES": "cpu,gres/gpu,gres/gpumem,gres/gpuutil"}
    assert counts_memory(tres | {"JobAcctGatherType": "jobacct_gather/cgroup"})
    assert not counts_memory(tres | {"JobAcctGatherType": "jobacct_gather/none"})
    assert not counts_memory({"AccountingStorageTRES": "cpu,gres/gpu", "JobAcctGatherType": "jobacct_gather/linux"})


@pytest.mark.parametrize(
    ("error", "user", "code"),
    [
        ("sacct: error: Invalid user id: nope", "nope", "NO_SUCH_USER"),
        ("sacct: error: Problem talking to the database: Connection refused", "", "SLURMDBD_AWAY"),
        ("sacct: error: slurmdbd: authentication: Munge encode failed", "", "SLURMDBD_AWAY"),
        ("sacct: error: Access/permission denied", "", "SLURM_DENIED"),
        ("sacct: fatal: something else", "", "SLURM_REFUSED"),
        ("", "", "SLURM_REFUSED"),
    ],
)
def test_what_sacct_says_becomes_an_error(
    error: str, user: str, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sacct").write_text(f"#!/bin/sh\necho '{error}' >&2\nexit 1\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    with pytest.raises(AliquotError) as failed:
        read_jobs(JobFilter(user=user), Window(0, 3600))
    assert failed.value.code == code


def test_a_listing_that_is_too_long_asks_for_a_shorter_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sacct").write_text("#!/bin/sh\nexec yes\n")
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr(bounded_program, "MOST_BYTES", 1 << 20)
    with pytest.raises(RefusedError) as refused:
        read_jobs(JobFilter(), Window(0, 3600))
    assert refused.value.brief == "cannot read Slurm's accounting: sacct has too many jobs: it writes more than 1 MiB"
    assert refused.value.next_step == "aliquot slurm report --since 1d"


def test_sacct_gets_the_window_and_no_preferences_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sacct").write_text(f'#!/bin/sh\necho "$SACCT_FORMAT $*" >{tmp_path}/words\necho "{DONE}"\n')
    (tmp_path / "sacct").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SACCT_FORMAT", "JobName")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    assert len(read_jobs(JobFilter(account="physics"), Window(1000, 4600))) == 1
    assert (tmp_path / "words").read_text() == (
        " --duplicates --allusers --parsable2 --noheader --starttime=now-3600 --allocations "
        "--format=JobIDRaw,State,Submit,Eligible,Start,End,TimelimitRaw,ReqTRES,AllocTRES --account=physics\n"
    )
