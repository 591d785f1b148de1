"""``aliquot slurm report``: over a cluster in memory and a listing of sacct. A real slurmdbd answers in
``tests/system/slurm/test_accounting.py``, a real Prometheus in ``tests/system/prometheus/test_slurm_report.py``.
"""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import pytest

from aliquot.cli.slurm import report as verb
from aliquot.slurm.client import connect
from support.slurm_accounting import Cluster, line, sacct, steps

from .conftest import Run

NOW = int(time.time())
HOUR = 3600
SMALL, BIG = "a100_1g.5gb", "a100_3g.20gb"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    """Return a cluster with accounting, whose jobs a test may change."""
    made = Cluster()

    @contextmanager
    def opened(*_: str) -> Iterator[Cluster]:
        yield made

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setattr(verb, "time", SimpleNamespace(time=lambda: NOW))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    sacct(
        tmp_path / "bin",
        line(1, "COMPLETED", NOW - 5 * HOUR, NOW - 3 * HOUR, kind=BIG, queued=NOW - 6 * HOUR),
        line(2, "TIMEOUT", NOW - 4 * HOUR, NOW - 3 * HOUR, kind=SMALL, count=2),
        line(3, "RUNNING", NOW - HOUR, 0, kind=SMALL),
        line(4, "PENDING", 0, 0, kind=BIG),
    )
    made.holding = (3,)
    return made


def test_the_table_has_the_jobs_of_each_type(run: Run, cluster: Cluster) -> None:
    result = run("slurm", "report", "--since", "1d")
    assert result.code == 0
    assert [re.sub(" {2,}", "|", each).rstrip("|") for each in result.out.splitlines()[2:]] == [
        "type|jobs|waiting|device-hours|GPU-hours|wait p50|wait p90|timed out|failed|of time limit",
        "a100_3g.20gb|1|1|2.00|1.00|1 h|1 h|0 %|0 %|50 %",
        "a100_1g.5gb|2|3.00|0.43|0 s|0 s|100 %|0 %|25 %",
    ]
    assert result.err == (
        "note     no use of GPUs was measured: name the Prometheus that scrapes dcgm-exporter with --prometheus URL\n"
    )


def test_the_document_has_the_window_the_filters_and_seconds(run: Run, cluster: Cluster) -> None:
    found = run("slurm", "report", "--since", "1d", "--user", "ann,bob", "-o", "json").document
    assert (found["kind"], found["until"] - found["since"], found["user"]) == ("SlurmReport", 86400, "ann,bob")
    big, small = found["types"]
    assert (big["type"], big["wait_p50_s"], big["gpu_hours"], big["use"]) == (BIG, HOUR, 1.0, None)
    assert (small["timed_out"], small["device_hours"], small["memory_mib"]) == (1.0, 3.0, 4864)
    assert found["no_dcgm"].startswith("name the Prometheus")


def test_slurms_own_measurements_are_used_without_dcgm(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    cluster.settings_found["JobAcctGatherType"] = "jobacct_gather/cgroup"
    cluster.settings_found["AccountingStorageTRES"] += ",gres/gpumem"
    steps(tmp_path / "bin", "1|", "1.batch|cpu=5,gres/gpumem=4194304000,mem=1", "2.0|gres/gpumem=1048576", "9.0|mem=1")
    found = run("slurm", "report", "--since", "1d", "-o", "json").document
    use = found["types"][0]["use"]
    assert (found["measured_by"], use["jobs"], use["memory_mib"], use["compute"]) == ("slurm", 1, 4000, None)
    assert [(each["profile"], each["saved_gpu_hours"]) for each in use["suggestions"]] == [("1g.5gb", 0.71)]
    assert found["types"][1]["use"] is None  # two devices share the value
    assert "the memory of jobs with one device is what Slurm measured" in run("slurm", "report").err


def test_a_job_that_slurmctld_does_not_have_is_named(run: Run, cluster: Cluster) -> None:
    cluster.holding = ()
    result = run("slurm", "report")
    assert "left out 1 job without an end that slurmctld does not have: sacctmgr show runawayjobs" in result.err
    cluster.settings_found["PrivateData"] = "jobs,usage"
    assert "left out" not in run("slurm", "report").err


def test_a_cluster_without_jobs(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    sacct(tmp_path / "bin")
    result = run("slurm", "report", "--since", "30min")
    assert (result.code, result.out.partition(": ")[2]) == (0, "none with GPUs, or Slurm hides them (PrivateData)\n")


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (["--since", "soon"], 2, "invalid --since 'soon'"),
        (["--since", "2099-01-01"], 2, "is not in the past"),
        (["--user", "a b"], 2, "invalid --user 'a b'"),
        (["--partition", "nope"], 20, "Slurm has no partition nope"),
        (["--prometheus", "127.0.0.1:9090"], 2, "is not the URL of a Prometheus"),
        (["--prometheus", "http://ann:secret@host"], 2, "must not contain a user or a password"),
        (["--prometheus", "http://host:99999"], 2, "invalid URL of Prometheus"),
        (["--prometheus", "file:///etc/passwd"], 2, "is not the URL of a Prometheus"),
    ],
)
def test_bad_input_is_refused(run: Run, cluster: Cluster, words: list[str], code: int, output: str) -> None:
    result = run("slurm", "report", *words)
    assert (result.code, result.out) == (code, "")
    assert output in result.err
    assert "secret" not in result.err


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """Run a server that gives every request the same response. Yield its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/prefix/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


EMPTY = b'{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (200, b"<html>", "does not answer as Prometheus does"),
        (200, b"", "does not answer as Prometheus does"),
        (200, b"[]", "does not answer as Prometheus does"),
        (200, EMPTY.replace(b"vector", b"matrix"), "does not answer as Prometheus does"),
        (200, EMPTY.replace(b"[]", b'[{"metric":{"hpc_job":"1"},"value":[1,"x"]}]'), "does not answer as"),
        (200, EMPTY.replace(b"[]", b'[{"metric":{"hpc_job":1},"value":[1,"2"]}]'), "does not answer as"),
        (422, b'{"status":"error","error":"too many samples"}', "status 422: too many samples"),
        (401, b"", "status 401"),
        (200, EMPTY, "has no DCGM_FI_DEV_FB_USED with the label hpc_job"),
    ],
)
def test_what_prometheus_does_not_answer_leaves_the_rest(
    run: Run, cluster: Cluster, status: int, body: bytes, reason: str
) -> None:
    with answering(status, body) as url:
        result = run("slurm", "report", "--prometheus", url)
    assert (result.code, len(result.out.splitlines())) == (0, 5)
    assert "no use of GPUs was measured" in result.err
    assert reason in result.err


def test_a_prometheus_that_cannot_be_reached_leaves_the_rest(run: Run, cluster: Cluster) -> None:
    result = run("slurm", "report", "--prometheus", "http://127.0.0.1:1")
    assert (result.code, len(result.out.splitlines())) == (0, 5)
    assert "Connection refused" in result.err


def test_100_000_jobs_take_less_than_5_s_of_cpu(run: Run, cluster: Cluster, tmp_path: Path) -> None:
    kinds = (SMALL, BIG, "a100", "old_2g.10gb")
    sacct(
        tmp_path / "bin",
        *(
            line(n, "COMPLETED", NOW - n - 60, NOW - n // 2, kind=kinds[n % 4], queued=NOW - 2 * n - 60)
            for n in range(100_000)
        ),
    )
    begun = resource.getrusage(resource.RUSAGE_SELF)
    found = run("slurm", "report", "-o", "json").document
    ended = resource.getrusage(resource.RUSAGE_SELF)
    assert sum(each["jobs"] for each in found["types"]) == 100_000
    assert ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime < 5
