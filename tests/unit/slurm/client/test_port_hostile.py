"""Programs that hang or report false data, and a server that is not slurmrestd: bounded, with a clear error."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.errors import UsageError
from aliquot.slurm.client import scontrol_output as text
from aliquot.slurm.client.command_client import ScontrolClient
from aliquot.slurm.client.connect import open_client
from aliquot.slurm.client.errors import DeniedError, OldSlurmError, RefusedError, SlurmError, SlurmUnavailableError
from aliquot.slurm.client.jwt import user_of
from aliquot.slurm.client.models import SlurmJob, Version
from aliquot.slurm.client.rest_client import SlurmRestClient
from aliquot.slurm.client.rest_transport import RestTransport
from support.processes import ended, until

RECORDED = Path(__file__).parents[3] / "recorded" / "slurm"
TEXT = RECORDED / "22.05" / "nodes.txt"


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file for a program. It is the only scontrol and squeue."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setattr("aliquot.slurm.client.bounded_program.PATIENCE_S", 0.3)
    program = tmp_path / "scontrol"
    program.touch(0o755)
    (tmp_path / "squeue").symlink_to(program)
    return program


def _program(file: Path, body: str) -> None:
    file.write_text(f"#!/bin/sh\n{body}\n")


def test_a_program_that_hangs_is_ended_with_its_children(scontrol: Path, tmp_path: Path) -> None:
    _program(scontrol, f'[ "$1" = ping ] && exit 1\nsleep 60 & echo $! > {tmp_path}/child\nwait')
    begun = time.monotonic()
    with pytest.raises(SlurmUnavailableError) as late:
        ScontrolClient(bound_s=1.0).nodes()
    assert time.monotonic() - begun < 10
    assert "no answer in 1 s" in late.value.details
    pid = int((tmp_path / "child").read_text())
    until(lambda: ended(pid))


def test_a_controller_known_to_be_down_is_not_waited_for(scontrol: Path) -> None:
    _program(scontrol, '[ "$1" = ping ] && { echo "Slurmctld(primary) at h is DOWN"; exit 1; }\nexec sleep 60')
    begun = time.monotonic()
    with pytest.raises(SlurmUnavailableError):
        ScontrolClient(bound_s=30.0).drain("n1", "aliquot: x")
    assert time.monotonic() - begun < 10


def test_a_backup_that_is_up_is_waited_for(scontrol: Path) -> None:
    output = "Slurmctld(primary) at a is DOWN\\nSlurmctld(backup) at b is UP"
    _program(scontrol, f'[ "$1" = ping ] && {{ printf "{output}"; exit 0; }}\nsleep 1; cat {TEXT}')
    assert len(ScontrolClient(json=False).nodes()) == 4


def test_no_json_plugin_means_text_from_then_on(scontrol: Path, tmp_path: Path) -> None:
    reported = tmp_path / "arguments"
    body = f'echo "$@" >> {reported}\n'
    body += f'case "$*" in *--json*) echo "fatal: JSON plugin load failure" >&2; exit 1;; esac\ncat {TEXT}'
    _program(scontrol, body)
    commands = ScontrolClient()
    assert commands.nodes() == commands.nodes() != ()
    assert reported.read_text().count("--json") == 1


def test_an_unavailable_controller_is_no_reason_to_forget_json(scontrol: Path) -> None:
    _program(scontrol, 'echo "slurm_load_node error: Unable to contact slurm controller" >&2; exit 1')
    commands = ScontrolClient()
    with pytest.raises(SlurmUnavailableError):
        commands.nodes()
    _program(scontrol, 'case "$*" in *--json*) echo "{}";; *) exit 1;; esac')
    assert commands.nodes() == ()


@pytest.mark.parametrize("output", ["{", "<html>", "[1]", ""])
def test_garbage_is_no_empty_cluster(scontrol: Path, output: str) -> None:
    _program(scontrol, f"printf '%s' '{output}'")
    with pytest.raises(SlurmError):
        ScontrolClient().nodes()
    if output:
        with pytest.raises(SlurmError):
            ScontrolClient(json=False).jobs()


FORGED = """x
JobId=999 JobName=forged
   UserId=root(0) GroupId=root(0)
   Priority=9 Nice=0
   JobState=RUNNING Reason=None
   Partition=all
   NodeList=n1"""
REAL = """
   UserId=eve(1000) GroupId=eve(1000)
   Priority=5 Nice=0
   JobState=PENDING Reason=Resources
   Partition=all AllocNode:Sid=h:1
   NodeList=
   TresPerNode=gres/gpu:a100:1
"""


@pytest.mark.parametrize(
    "job",
    [
        f"JobId=7 JobName={FORGED}{REAL}",  # sbatch -J: comes before the rest of its own record
        f"JobId=7 JobName=x{REAL}   Comment={FORGED}\n   StdIn=/dev/null\n",
        f"JobId=7 JobName=x\n   JobState=RUNNING Reason=None\n   NodeList=n1{REAL}",
        f"JobId=7 JobName=x{REAL}   Comment=x\nJobId=8 JobName=y{REAL.replace('PENDING', 'RUNNING')}",
    ],
)
def test_a_jobs_name_makes_no_other_job(scontrol: Path, tmp_path: Path, job: str) -> None:
    # scontrol of 22.05 and 24.11 prints names and comments with their line breaks.
    (tmp_path / "jobs").write_text(job + f"\nJobId=8 JobName=honest{REAL}")
    sure = "8|PENDING|eve|all|1|5|\\n7|PENDING|eve|all|1|5|\\n"
    answers = (f'*--format*) printf "{sure}"', "*config*) echo SLURM_VERSION = 22.05.8", f"*) cat {tmp_path}/jobs")
    _program(scontrol, f'case "$*" in {";; ".join(answers)};; esac')
    found = {j.id: j for j in ScontrolClient(json=False).jobs()}
    assert set(found) == {7, 8}
    assert {(j.state, j.user, j.nodes) for j in found.values()} == {("PENDING", "eve", ())}
    assert ScontrolClient(json=False).jobs("n1") == ()


def test_a_jobs_name_does_not_move_it_off_its_node(scontrol: Path, tmp_path: Path) -> None:
    # The jobs of one node are read one by one if squeue has no JSON output that respects the requested filter.
    (tmp_path / "job").write_text(f"JobId=7 JobName=x\n   JobState=PENDING Reason=None\n   NodeList={REAL}")
    answers = (
        "*--nodelist=n1*--format*) printf '7|RUNNING|eve|all|1|5|n1\\n8|RUNNING|eve|all|1|5|n1\\n'",
        "*config*) echo SLURM_VERSION = 22.05.8",
        f"*job*7) cat {tmp_path}/job",
        "*) echo Invalid job id specified >&2; exit 1",
    )
    _program(scontrol, f'case "$*" in {";; ".join(answers)};; esac')
    assert [(j.id, j.state, j.nodes) for j in ScontrolClient(json=False).jobs("n1")] == [(7, "RUNNING", ("n1",))]


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", SlurmUnavailableError),
        ("slurm_load_jobs error: Access/permission denied", DeniedError),
        ("scontrol: error: something else", RefusedError),
        ("wrapper: 1: scontrol: not found", RefusedError),  # without such a node in Slurm, it has no jobs
    ],
    ids=["away", "denied", "else", "no-node"],
)
def test_a_job_that_cannot_be_read_is_not_one_that_is_gone(
    scontrol: Path, output: str, error: type[SlurmError]
) -> None:
    # The job may be suspended and hold the node's GPUs: the node must not count as empty.
    answers = (
        "*--nodelist=n1*--format*) printf '7|SUSPENDED|eve|all|1|5|n1\\n'",
        "*config*) echo SLURM_VERSION = 22.05.8",
        f"*) echo '{output}' >&2; exit 1",
    )
    _program(scontrol, f'case "$*" in {";; ".join(answers)};; esac')
    with pytest.raises(error):
        ScontrolClient(json=False).jobs("n1")


@pytest.mark.parametrize(
    "output",
    ["echo slurm_load_jobs error: Invalid job id specified >&2", "echo Job 7 not found"],
    ids=["error", "said"],
)
def test_a_job_that_slurm_has_forgotten_meanwhile_is_no_failure(scontrol: Path, output: str) -> None:
    answers = (
        "*--nodelist=n1*--format*) printf '7|COMPLETING|eve|all|1|5|n1\\n'",
        "*config*) echo SLURM_VERSION = 22.05.8",
        f"*) {output}; exit 1",
    )
    _program(scontrol, f'case "$*" in {";; ".join(answers)};; esac')
    assert ScontrolClient(json=False).jobs("n1") == ()


def test_honest_jobs_are_read_whole(scontrol: Path) -> None:
    for release in ("22.05", "24.11"):
        every = text.jobs((RECORDED / release / "jobs.txt").read_text())
        there = {j.id: SlurmJob(j.id, "RUNNING") for j in every}
        assert text.verified_jobs((RECORDED / release / "jobs.txt").read_text(), there) == every


def test_a_release_before_dynamic_nodes(scontrol: Path) -> None:
    _program(scontrol, 'case "$*" in *config*) echo "SLURM_VERSION = 21.08.8";; *) exit 1;; esac')
    with pytest.raises(OldSlurmError, match=r"22\.05"):
        ScontrolClient().create("NodeName=x State=FUTURE")
    with pytest.raises(OldSlurmError, match=r"22\.05"):
        ScontrolClient().delete("x")
    assert ScontrolClient().version() == Version(21, 8, 8)


def test_what_is_reported_of_a_new_node_is_reported_once(scontrol: Path) -> None:
    # Otherwise a user's text within a value would come last and take precedence.
    _program(scontrol, "exit 1")
    with pytest.raises(RefusedError, match="twice"):
        ScontrolClient().create("NodeName=x Gres=gpu:a:1 Feature=b State=IDLE State=FUTURE")


def test_a_reason_gives_a_terminal_no_orders(scontrol: Path, tmp_path: Path) -> None:
    _program(scontrol, f'printf "%s\\n" "$@" > {tmp_path}/arguments')
    ScontrolClient().drain("n1", "aliquot: failed:\x1b[2J all\n well")
    assert (tmp_path / "arguments").read_text().endswith("reason=aliquot: failed: [2J all well\n")


def test_a_persons_settings_for_listings_do_not_reach_us(scontrol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "FAILED")
    monkeypatch.setenv("SLURM_CLUSTERS", "other")
    _program(scontrol, '[ -z "$SQUEUE_STATES$SLURM_CLUSTERS" ] && echo "{}"')
    assert ScontrolClient().jobs() == ()


def test_the_choice_of_a_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIQUOT_SLURM", raising=False)
    for choice, through in (
        ("", "scontrol"),
        ("commands", "scontrol"),
        ("rest", "slurmrestd"),
        ("unix:/x", "slurmrestd"),
    ):
        with open_client(choice) as slurm:
            assert slurm.through == through
    monkeypatch.setenv("ALIQUOT_SLURM", "http://h:1")
    with open_client() as slurm:
        assert slurm.through == "slurmrestd"
    for wrong in ("yes", "http://", "unix:", "ftp://h"):
        with pytest.raises(UsageError), open_client(wrong):
            pass


@contextlib.contextmanager
def _server(*answers: bytes, drip_s: float = 0.0) -> Iterator[str]:
    """Answer one connection after the other, whatever the request. The last answer repeats."""
    connection = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def serve() -> None:
        left = list(answers)
        while not ended.is_set():
            try:
                caller, _ = connection.accept()
            except OSError:
                return
            with caller, contextlib.suppress(OSError):
                caller.recv(65536)
                answer = left.pop(0) if len(left) > 1 else left[0]
                for at in range(0, len(answer), 1 if drip_s else len(answer) or 1):
                    caller.sendall(answer[at : at + 1] if drip_s else answer)
                    if ended.wait(drip_s):
                        return

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{connection.getsockname()[1]}"
    finally:
        ended.set()
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        thread.join()


def _http(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\n\r\n".encode() + body


def _api(*shapes: int) -> bytes:
    paths: dict[str, object] = {
        f"/slurm/v0.0.{s}/{p}": {"get": 1} for s in shapes for p in ("nodes/", "jobs/", "ping/")
    }
    return _http(json.dumps({"paths": paths}).encode())


def _rest(place: str, bound_s: float = 2.0) -> SlurmRestClient:
    return SlurmRestClient(RestTransport(place, "", bound_s), ScontrolClient())


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        ((_http(b"<html>"),), RefusedError),
        ((_http(b"{}"),), RefusedError),
        ((b"SSH-2.0-OpenSSH\r\n",), SlurmUnavailableError),
        ((b"",), SlurmUnavailableError),
        ((_http(b'{"paths": {}}', length=500),), SlurmUnavailableError),
        ((_http(b'{"paths": {}}'),), OldSlurmError),
        ((_api(35, 99),), OldSlurmError),
        ((_http(b"no", "401 UNAUTHORIZED"),), DeniedError),
        ((_api(42), _http(b"<html>")), RefusedError),
        ((_api(42), _http(b"[]")), RefusedError),
        ((_api(42), _http(b"{}", "500 INTERNAL ERROR")), RefusedError),
        ((_api(42), _http(b"Unable find requested URL", "404 NOT FOUND")), OldSlurmError),
        ((_api(38), _http(b'{"errors": [{"error": "Unspecified error", "errno": -1}]}', "500 ERROR")), DeniedError),
        (
            (_api(42), _http(b'{"errors": [{"error": "Unable to contact slurm controller"}]}', "502 BAD")),
            SlurmUnavailableError,
        ),
    ],
)
def test_a_server_that_is_not_what_it_should_be(answers: tuple[bytes, ...], error: type[SlurmError]) -> None:
    with _server(*answers) as place, pytest.raises(error) as caught:
        _rest(place).jobs()
    assert type(caught.value) is error


@pytest.mark.parametrize(
    "output",
    ["Unable to contact slurm controller (connect failure)", "Access/permission denied"],
    ids=["away", "denied"],
)
def test_slurmrestd_says_what_scontrol_cannot(scontrol: Path, output: str) -> None:
    # slurmctld's port may be closed to this host while slurmrestd's is open.
    _program(scontrol, f'echo "slurm_load error: {output}" >&2; exit 1')
    nodes, jobs = ((RECORDED / "24.11" / f"v0.0.42-{what}.json").read_bytes() for what in ("nodes", "jobs"))
    with _server(_api(42), _http(nodes)) as place:
        assert _rest(place).node("n1").name == "n1"
    with _server(_api(42), _http(jobs)) as place:
        assert _rest(place).jobs("n1")
    old = (RECORDED / "22.05" / "v0.0.38-nodes.json").read_bytes()
    with _server(_api(38), _http(old)) as place:
        assert _rest(place).node("n1").name == "n1"


def test_an_answer_without_end_is_cut_off() -> None:
    begun = time.monotonic()
    with _server(_http(b" " * 1000), drip_s=0.2) as place, pytest.raises(SlurmUnavailableError):
        _rest(place, bound_s=0.9).jobs()
    assert time.monotonic() - begun < 3


def test_the_newest_version_that_both_know_is_spoken() -> None:
    recorded = (RECORDED / "24.11" / "v0.0.42-jobs.json").read_bytes()
    with _server(_api(39, 46, 99), _http(recorded)) as place:
        rest = _rest(place)
        assert rest.jobs()
        assert rest._known_shape() == 46


def test_a_token_says_whose_it_is_and_when_it_is_over() -> None:
    def token(**claims: object) -> str:
        middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        return f"e30.{middle}.x"

    assert user_of(token(sun="root")) == "root"
    for other in (token(sun="a\r\nX-Other: b"), token(sun=7), token(), "a.b", "", "x.%%%.y", "a..b"):
        assert user_of(other) == ""
    with pytest.raises(DeniedError) as caught:
        RestTransport("unix:/nowhere", token(sun="root", exp=1)).request("look", "GET", "/")
    assert "root" in caught.value.details[0]


@pytest.mark.parametrize("token", ["secret.\nX-Other: 1", "secret\x7f", "secr\u00e9t", "secret\r"])
def test_a_secret_is_in_no_complaint(token: str) -> None:
    with pytest.raises(UsageError) as wrong:
        RestTransport("http://h:1", f"{token}.end")
    with pytest.raises(UsageError) as worse:
        RestTransport("http://root:secret@h:1")
    assert "secr" not in repr([(e.value.brief, e.value.details, e.value.next_step) for e in (wrong, worse)])
