"""Unavailable, closed or strange clusters: an error with a next step, soon, and no change."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aliquot.errors import AliquotError
from aliquot.slurm.client.command_client import ScontrolClient
from aliquot.slurm.client.errors import DeniedError, NoSlurmError, RefusedError, SlurmUnavailableError
from aliquot.slurm.client.rest_client import SlurmRestClient
from aliquot.slurm.client.rest_transport import RestTransport

from .bed import Bed, until
from .transports import outside

UNPRIVILEGED_UID = 65534
_TRY = """
import sys
from aliquot.slurm.client.connect import open_client
with open_client() as slurm:
    print("sees", sorted(n.name for n in slurm.nodes()))
    for change in (
        lambda: slurm.drain("n1", "aliquot: x"), lambda: slurm.resume("n1"), lambda: slurm.note("n1", "x"),
        lambda: slurm.features("n1", ("x",)), lambda: slurm.requeue(int(sys.argv[1])), slurm.reconfigure,
        lambda: slurm.create("NodeName=new CPUs=1 State=FUTURE"), lambda: slurm.delete("n1"),
    ):
        try:
            change()
        except Exception as refused:
            print(type(refused).__name__)
        else:
            print("done")
"""


@pytest.fixture
def running(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Bed:
    """Start slurmctld with a node without slurmd, and let Aliquot's programs find it."""
    bed.conf(bed.node("n1", "CPUs=1 Feature=x") + "\nMaxNodeCount=9\nPartitionName=all Nodes=ALL Default=YES")
    bed.controller()
    monkeypatch.setenv("PATH", str(outside(bed)), prepend=":")
    monkeypatch.setenv("SLURM_CONF", str(bed.etc / "slurm.conf"))
    return bed


def _took(act: Callable[[], object], error: type[AliquotError]) -> tuple[AliquotError, float]:
    begun = time.monotonic()
    with pytest.raises(error) as raised:
        act()
    assert raised.value.next_step
    return raised.value, time.monotonic() - begun


def test_slurmctld_is_unavailable_and_comes_back(running: Bed) -> None:
    rest = running.rest()
    transports = (ScontrolClient(), SlurmRestClient(RestTransport(rest.url, rest.token), ScontrolClient()))
    assert [n.name for n in transports[1].nodes()] == ["n1"]  # so that it knows the features of slurmrestd
    running.stop("slurmctld")
    for way, seconds in zip(transports, (6, 12), strict=True):
        answer, took = _took(lambda way=way: way.jobs(), SlurmUnavailableError)  # type: ignore[misc]
        assert took < seconds
        assert "slurmctld does not answer" in answer.brief
    _, took = _took(lambda: transports[0].drain("n1", "aliquot: x"), SlurmUnavailableError)
    assert took < 6
    running.controller()
    for way in transports:
        assert not way.node("n1").draining


def test_who_is_no_operator_may_look_and_change_nothing(running: Bed) -> None:
    job = running.submit("true", "--hold").out
    script = running.folder / "try.py"
    script.write_text(_TRY)
    program = Path(outside(running)) / "scontrol"
    inner = (
        f"chroot --userspec={UNPRIVILEGED_UID}:{UNPRIVILEGED_UID} {running.release.root}"
        if running.release.chrooted
        else ""
    )
    drop = (
        ""
        if running.release.chrooted
        else f"setpriv --reuid={UNPRIVILEGED_UID} --regid={UNPRIVILEGED_UID} --clear-groups"
    )
    program.write_text(f'#!/bin/sh\nexec {" ".join(running.inside())} {inner} {drop} /usr/bin/scontrol "$@"\n')
    answer = running.run(sys.executable, str(script), job, env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert answer.out.splitlines() == ["sees ['n1']", *["DeniedError"] * 8], answer
    assert not ScontrolClient().node("n1").draining


def test_a_token_that_does_not_hold(running: Bed) -> None:
    rest = running.rest()
    good, commands = rest.token, ScontrolClient()
    head, middle, sign = good.split(".")
    forged = f"{head}.{middle}.{sign[::-1]}"
    over = running.token(age=1)
    time.sleep(2)
    for token in (forged, over, "", "garbage"):
        client = SlurmRestClient(RestTransport(rest.url, token), commands)
        _, took = _took(client.jobs, DeniedError)
        assert took < 5
    assert SlurmRestClient(RestTransport(rest.url, good), commands).jobs() == ()


def test_no_slurmrestd_there(running: Bed) -> None:
    port = running.ports.of("nobody listens")
    for place in (f"http://127.0.0.1:{port}", "unix:/nowhere/rest.sock", "http://no.such.host.invalid"):
        client = SlurmRestClient(RestTransport(place), ScontrolClient())
        answer, _ = _took(client.jobs, SlurmUnavailableError)
        assert place in answer.brief


def test_munge_is_unavailable(running: Bed) -> None:
    running.stop("munged")
    until(lambda: not (running.folder / "munge" / "socket").exists(), "munged stays")
    answer, took = _took(lambda: ScontrolClient().nodes(), AliquotError)
    assert took < 12
    assert isinstance(answer, DeniedError | SlurmUnavailableError)
    assert any("unge" in line for line in (answer.brief, *answer.details))


def test_no_slurm_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    answer, took = _took(lambda: ScontrolClient().nodes(), NoSlurmError)
    assert took < 1
    assert "install" in str(answer.next_step)
    answer, took = _took(lambda: ScontrolClient(str(tmp_path / "slurm.conf")).nodes(), NoSlurmError)
    assert took < 1
    assert "slurm.conf" in answer.brief


def test_a_record_that_slurm_hides_is_not_made_twice(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    # 22.05 hides a CLOUD record that is down from every user, and would create it again.
    power = "SuspendTime=600\nSuspendProgram=/bin/true\nResumeProgram=/bin/true"
    bed.conf(f"{bed.node('cl1', 'CPUs=1 State=CLOUD')}\nMaxNodeCount=9\nPartitionName=all Nodes=ALL", more=power)
    bed.controller()
    monkeypatch.setenv("PATH", str(outside(bed)), prepend=":")
    commands = ScontrolClient(str(bed.etc / "slurm.conf"))
    with pytest.raises(RefusedError, match="already"):
        commands.create("NodeName=cl1 CPUs=1 State=FUTURE")
