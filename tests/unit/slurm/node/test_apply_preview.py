"""``slurm apply --dry-run`` prints the later change, and touches nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.errors import BlockedError
from aliquot.sim.driver.usage import hold
from aliquot.sim.state import ProcessState
from aliquot.slurm.client.models import SlurmJob
from aliquot.slurm.node.dry_run import SlurmPreview, preview
from aliquot.slurm.node.request import SlurmChange
from support.slurmfake import Host


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, monkeypatch)
    assert made.apply("0-1", "1g.5gb*7").status == "done"
    made.cluster.change("n1", slurmd_start=1000)
    return made


def seen(host: Host, request: str, gpus: str = "0") -> SlurmPreview:
    return preview(SlurmChange(host.settings, host.node.desired_state(gpus, request)), host.context)


def state(host: Host) -> tuple[object, ...]:
    files = {p: p.read_text() for p in sorted(host.folder.rglob("*")) if p.is_file()}
    return host.cluster.records["n1"], host.node.backend.read(), files, host.slurmd.log


@pytest.mark.parametrize("requested", ["3g.20gb*2", "2g.10gb*3,1g.5gb", "7g.40gb", "1g.5gb*7"])
def test_it_is_what_the_change_then_does(host: Host, requested: str) -> None:
    before = state(host)
    answer = seen(host, requested)
    assert state(host) == before
    gres = host.folder / "etc" / "gres.conf"
    previous = gres.read_text().splitlines()
    outcome = host.apply("0", requested)
    assert (answer.status == "nothing") == (outcome.status == "nothing")
    assert answer.gres == outcome.gres
    if answer.status == "nothing":
        return
    assert list(answer.steps) == [name for name, _ in outcome.steps]
    added = {
        line[1:] for text in answer.files for line in text.splitlines() if line.startswith("+") and line[1:2] != "+"
    }
    assert added == set(gres.read_text().splitlines()) - set(previous)


def test_jobs_are_reported_and_what_cannot_be_is_refused(host: Host) -> None:
    host.cluster.queue = [SlurmJob(7, "RUNNING", user="ann", name="train", nodes=("n1",))]
    hold(host.node.backend.memory.node.gpus[0], ProcessState(4242, "python3", 7, 0))
    answer = seen(host, "3g.20gb*2")
    assert answer.jobs == ("job 7 (train of ann): running",)
    assert answer.gres.startswith("gpu:a100_3g.20gb:2,")
    with pytest.raises(BlockedError):
        seen(host, "4g.20gb*2")
