"""``aliquot slurm types``: its table, its documents and its list, over a cluster in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from aliquot.cli.slurm import table_users
from aliquot.slurm.client import connect
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode, SlurmPartition

from .conftest import Run

SMALL, BIG = Gres("gpu", "a100_1g.5gb", 7), Gres("gpu", "a100_3g.20gb", 2)
PLACEHOLDER = "aliquot-layouts-0123abcd-0"
SETTINGS = """version: aliquot-slurm/v1
records: [{nodes: "n[1-2]"}]
partitions: {debug: {demands: false}}
layouts: {thirds: {2g.10gb: 3}}
"""


class Cluster:
    """Three nodes, two of them in two partitions, a running job, and a placeholder."""

    def nodes(self) -> tuple[SlurmNode, ...]:
        used = (Gres("gpu", BIG.type, 2), Gres("gpu", SMALL.type, 1))
        idle, both = frozenset({"IDLE"}), ("debug", "main")
        return (
            SlurmNode("n1", idle, gres=(SMALL, BIG), gres_used=used, partitions=both, cpus=64),
            SlurmNode("n2", idle, gres=(SMALL,), partitions=both, cpus=64),
            SlurmNode("n3", idle, gres=(Gres("gpu", "a100", 4),), partitions=("main",), cpus=64),
            SlurmNode(
                PLACEHOLDER, frozenset({"FUTURE", "DRAIN"}), gres=(Gres("gpu", "a100_7g.40gb", 2),), partitions=both
            ),
        )

    def jobs(self, *, holding: bool) -> tuple[SlurmJob, ...]:
        end = int(time.time()) + 1530
        return (SlurmJob(1, "RUNNING", allocated=(("n1", Gres("gpu", BIG.type, 2)),), latest_end=end),)

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return SlurmPartition("main"), SlurmPartition("debug")


@pytest.fixture(autouse=True)
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    @contextmanager
    def opened(*_: str) -> Iterator[Cluster]:
        yield Cluster()

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setattr(table_users, "SETTINGS", str(tmp_path / "slurm.yaml"))


TABLE = """\
request                    total  free  free soon    on demand  memory    compute  partitions
--gres=gpu:a100:1          4      4                                       7 of 7   main
--gres=gpu:a100_7g.40gb:1  0      0                  2 a node   39.5 GiB  7 of 7   debug,main
--gres=gpu:a100_3g.20gb:1  2      0     2 in 25 min             19.6 GiB  3 of 7   debug,main
--gres=gpu:a100_1g.5gb:1   14     13                            4.8 GiB   1 of 7   debug,main

example  sbatch --partition=main --gres=gpu:a100:1 job.sh
"""


def test_a_user_reads_what_to_request(run: Run) -> None:
    result = run("slurm", "types")
    assert (result.code, result.out) == (0, TABLE), result.err
    assert result.err == (
        "note     not in 'free soon': devices of jobs that are longer, have no time limit, or are hidden\n"
    )


def test_one_type_in_any_spelling(run: Run) -> None:
    result = run("slurm", "types", "gpu:3G.20gb:2")
    assert result.out.splitlines()[1].startswith("--gres=gpu:a100_3g.20gb:1")
    assert result.out.splitlines()[-1] == "example  sbatch --partition=debug --gres=gpu:a100_3g.20gb:1 job.sh"
    assert len(result.out.splitlines()) == 4
    (offer,) = run("slurm", "types", "3g.20gb", "-o", "json").document["types"]
    assert (offer["request"], offer["total"], offer["free"]) == ("--gres=gpu:a100_3g.20gb:1", 2, 0)
    assert [each["count"] for each in offer["soon"]] == [2]
    assert offer["facts"]["memory_mib"] == 20096
    assert yaml.safe_load(run("slurm", "types", "-o", "yaml").out)["kind"] == "SlurmTypes"


def test_a_near_miss_names_the_request_to_type(run: Run) -> None:
    result = run("slurm", "types", "3g.40gb")
    assert (result.code, result.out) == (20, "")
    assert result.err.splitlines() == [
        "blocked[NO_SUCH_TYPE]: no type 3g.40gb can be requested here",
        "  near     --gres=gpu:a100_3g.20gb:1  (19.6 GiB, compute 3 of 7)",
        "  near     --gres=gpu:a100_1g.5gb:1  (4.8 GiB, compute 1 of 7)",
        "  near     --gres=gpu:a100_7g.40gb:1  (39.5 GiB, compute 7 of 7)",
        "  next     aliquot slurm types",
    ]


def test_the_list_is_for_job_submit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm.yaml").write_text(SETTINGS)
    expected = [
        "type debug a100_1g.5gb",
        "type debug a100_3g.20gb",
        "type main a100",
        "type main a100_1g.5gb",
        "type main a100_3g.20gb",
        "type main a100_7g.40gb",  # on demand, but not for jobs of debug
        "layout thirds",
    ]
    assert run("slurm", "types", "--list").out.splitlines() == expected
    out = tmp_path / "aliquot-types"
    for _ in range(2):
        assert run("slurm", "types", "--list", "--out", str(out)).err == f"wrote {out}\n"
    first, *lines = out.read_text().splitlines()
    assert first.startswith("# ")
    assert lines == expected
    assert run("slurm", "types", "--list", "--out", "-").out.splitlines() == expected
    out.write_text("type main mine\n")
    assert run("slurm", "types", "--list", "--out", str(out)).code != 0, "a file of the site's own"


def test_settings_that_were_not_named_are_no_reason_to_fail(run: Run, tmp_path: Path) -> None:
    (tmp_path / "slurm.yaml").write_text("version: other\n")
    result = run("slurm", "types")
    assert (result.code, result.out) == (0, TABLE), result.err
    assert "the restrictions of" in result.err
    assert run("slurm", "types", "-f", str(tmp_path / "slurm.yaml")).code == 2
    assert run("slurm", "types", "-f", str(tmp_path / "gone.yaml")).code == 2


def test_a_file_without_the_list_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    assert run("slurm", "types", "--out", str(tmp_path / "x")).code == 2
