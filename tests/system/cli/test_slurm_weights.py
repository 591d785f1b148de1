"""``aliquot slurm weights``: lines for a slurm.conf, over a cluster in memory; a real Slurm bills by them in
``tests/system/slurm/test_accounting.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.slurm.client import connect
from aliquot.slurm.client.models import Gres, SlurmNode, SlurmPartition

from .conftest import Run

CONF = """ClusterName=c
PartitionName=main Nodes=n1 TRESBillingWeights="CPU=1.0"
PartitionName=whole Nodes=n2
"""


class Cluster:
    """A node with MIG devices, one with a whole GPU, and slurmctld's settings."""

    def __init__(self, settings: dict[str, str]) -> None:
        self._settings = settings

    def settings(self) -> dict[str, str]:
        return self._settings

    def nodes(self) -> tuple[SlurmNode, ...]:
        devices = (Gres("gpu", "a100_1g.5gb", 7), Gres("gpu", "a100_3g.20gb", 2), Gres("gpu", "odd_1g.999gb", 1))
        whole = (Gres("gpu", "a100", 4),)
        return (
            SlurmNode("n1", frozenset({"IDLE"}), gres=devices, partitions=("main", "runtime")),
            SlurmNode("n2", frozenset({"IDLE"}), gres=whole, partitions=("whole",)),
        )

    def partitions(self) -> tuple[SlurmPartition, ...]:
        return SlurmPartition("main"), SlurmPartition("whole"), SlurmPartition("runtime")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Return slurmctld's settings, which a test may change."""
    found = {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageTRES": "cpu,mem,license/x"}

    @contextmanager
    def opened(*_: str) -> Iterator[Cluster]:
        yield Cluster(found)

    monkeypatch.setattr(connect, "open_client", opened)
    (tmp_path / "slurm.conf").write_text(CONF)
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    return found


def test_the_lines_come_with_the_rule_that_made_them(run: Run, settings: dict[str, str], tmp_path: Path) -> None:
    result = run("slurm", "weights", "main")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "# The weight of a device is the part of a GPU that it takes from others:",
        "# the larger of its shares of memory slices and of compute slices.",
        "#   a100_3g.20gb  4/8 memory, 3/7 compute  50 % of a GPU",
        "#   odd_1g.999gb  unknown to the catalog   no weight",
        "#   a100_1g.5gb   1/8 memory, 1/7 compute  14.29 % of a GPU",
        "# First this, then restart slurmctld: it does not start with weights of other TRES.",
        "AccountingStorageTRES=license/x,gres/gpu,gres/gpu:a100_3g.20gb,gres/gpu:a100_1g.5gb",
        f"# {tmp_path}/slurm.conf:2",
        'PartitionName=main Nodes=n1 TRESBillingWeights="CPU=1.0,GRES/gpu:a100_3g.20gb=50,GRES/gpu:a100_1g.5gb=14.29"',
    ]


def test_a_partition_that_no_file_has_does_not_keep_the_others_waiting(run: Run, settings: dict[str, str]) -> None:
    result = run("slurm", "weights")
    assert result.code == 0
    assert result.err.startswith("note     ")
    assert "has no line for partition runtime" in result.err
    assert "PartitionName=main" in result.out


def test_with_the_tres_in_place_the_change_needs_no_restart(run: Run, settings: dict[str, str]) -> None:
    settings["AccountingStorageTRES"] += ",gres/gpu,gres/gpu:a100_3g.20gb,gres/gpu:a100_1g.5gb"
    result = run("slurm", "weights", "main", "--whole", "8")
    assert "AccountingStorageTRES=" not in result.out
    assert result.out.splitlines()[-1] == (
        "#   without a restart: scontrol update partitionname=main "
        "tresbillingweights=CPU=1.0,GRES/gpu:a100_3g.20gb=4,GRES/gpu:a100_1g.5gb=1.14"
    )
    document = run("slurm", "weights", "main", "-o", "json").document
    assert document["accounting_storage_tres"] == ""
    assert [each["partition"] for each in document["partitions"]] == ["main"]


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["whole"], 20, "partition whole has no MIG devices"),
        (["nope"], 20, "partition nope has no MIG devices"),
        (["runtime"], 20, "has no line for partition runtime"),
        (["--whole", "0"], 2, "--whole takes a number above 0"),
        (["--conf-dir", "/nonexistent"], 2, "does not exist"),
    ],
)
def test_what_has_no_weights_is_refused(
    run: Run, settings: dict[str, str], words: list[str], code: int, output: str
) -> None:
    result = run("slurm", "weights", *words)
    assert (result.code, result.out) == (code, "")
    assert output in result.err


def test_without_slurmdbd_it_prints_no_lines_that_would_stop_slurmctld(run: Run, settings: dict[str, str]) -> None:
    settings["AccountingStorageType"] = ""
    result = run("slurm", "weights")
    assert (result.code, result.out) == (20, "")
    assert "blocked[NO_ACCOUNTING]" in result.err
