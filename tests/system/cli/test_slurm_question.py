"""``aliquot slurm apply``: the node may change before the user confirms, but the command applies the plan that it
showed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from aliquot.cli.framework import confirmation
from aliquot.foundation.lock import FileLock
from aliquot.slurm.client.models import SlurmJob
from aliquot.slurm.node.context import SlurmChangeOutcome
from support.slurmfake import WORDS, Host

from .conftest import Result, Run

Asked = Callable[[Callable[[], object]], Result]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, monkeypatch)
    assert made.apply("0-1", "1g.5gb*7").status == "done"
    return made


@pytest.fixture
def asked(host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Asked:
    """Run the command at a terminal. Calls ``hand`` before it answers yes."""
    lib = str(tmp_path / "lib")

    @contextmanager
    def connected(_: object) -> Iterator[SimpleNamespace]:
        context = host.context.gpus
        yield SimpleNamespace(
            backend=context.backend, directory=lib, simulated=True, execution_context=lambda *_: context
        )

    @contextmanager
    def slurm(_: object) -> Iterator[object]:
        yield host.cluster

    monkeypatch.setattr("aliquot.cli.framework.target_node.connected", connected)
    monkeypatch.setattr("aliquot.cli.slurm.apply._slurm", slurm)
    monkeypatch.setattr("aliquot.slurm.node.slurmd.daemon_of", lambda _: host.slurmd)
    monkeypatch.setattr("aliquot.slurm.files.gpu_numbering.run_folder", lambda _: str(tmp_path / "run"))
    monkeypatch.setattr(confirmation, "is_interactive", lambda: True)

    def typed(hand: Callable[[], object]) -> Result:
        def confirmed(_: object, plan: Callable[[bool], str]) -> bool:
            assert "gpu:a100_3g.20gb:2" in plan(False)
            hand()
            return True

        monkeypatch.setattr(confirmation, "confirmed", confirmed)
        etc, commands = str(tmp_path / "etc"), ("--slurmd-start", "true", "--slurmd-stop", "true")
        where = ("--node-name", "n1", "--conf-dir", etc, "--dev-root", "/", "--node-conf", WORDS)
        return run("slurm", "apply", "--gpu", "0", "--mig", "3g.20gb*2", *where, *commands)

    return typed


def test_no_lock_is_held_for_a_persons_answer(host: Host, asked: Asked, tmp_path: Path) -> None:
    free = []

    def hand() -> None:
        with FileLock(str(tmp_path / "lib" / "slurm" / "n1.lock")).hold():
            free.append(True)

    done = asked(hand)
    assert (done.code, free) == (0, [True]), done
    assert "done: n1 has gpu:a100_3g.20gb:2," in done.out


def test_what_was_shown_is_done_or_nothing(host: Host, asked: Asked) -> None:
    other: list[object] = []

    def hand() -> None:
        assert_done(host.apply("1", "2g.10gb*3"))
        other.extend((host.cluster.records["n1"], host.node.backend.read(), tuple(host.slurmd.log)))

    refused = asked(hand)
    assert refused.code == 20, refused
    assert "n1 has changed since the preview" in refused.err
    assert (
        "GRES: the preview had gpu:a100_3g.20gb:2,gpu:a100_1g.5gb:7, now it is gpu:a100_3g.20gb:2,gpu:a100_2g.10gb:3"
        in refused.err
    )
    assert "files: the lines differ from the preview" in refused.err
    assert "GPUs:" not in refused.err, "those of GPU 0 are the same"
    assert [host.cluster.records["n1"], host.node.backend.read(), tuple(host.slurmd.log)] == other


def test_other_changes_of_the_gpus_are_not_made(host: Host, asked: Asked) -> None:
    # The GRES would be the same, but the plan would destroy an instance that the user did not see.
    refused = asked(lambda: assert_done(host.apply("0", "7g.40gb")))
    assert refused.code == 20, refused
    assert "GPUs: the changes differ from the preview" in refused.err
    assert "GRES:" not in refused.err


def test_what_was_done_meanwhile_is_not_done_again(host: Host, asked: Asked) -> None:
    done = asked(lambda: assert_done(host.apply("0", "3g.20gb*2")))
    assert (done.code, done.out.partition(":")[0]) == (0, "nothing to do"), done


def assert_done(outcome: SlurmChangeOutcome) -> None:
    assert outcome.status == "done"


def test_a_job_that_ends_meanwhile_is_no_reason_to_ask_again(host: Host, asked: Asked) -> None:
    host.cluster.queue = [SlurmJob(7, "COMPLETING", user="ann", name="train", nodes=("n1",))]
    done = asked(lambda: host.cluster.queue.clear())
    assert done.code == 0, done
