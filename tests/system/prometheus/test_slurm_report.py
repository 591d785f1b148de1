"""``aliquot slurm report`` over a real Prometheus that has days of dcgm-exporter's metrics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.cli.main import main
from aliquot.slurm.client import connect
from support.slurm_accounting import Cluster, line, sacct
from system.prometheus.bed import promtool
from system.prometheus.conftest import MakePrometheus

NOW = int(time.time())
HOUR = 3600
BIG = "a100_3g.20gb"


def metrics(
    job: int, start: int, end: int, memory: int, busy: float, *, peak_at: int = 0, cluster: str = "alpha"
) -> Iterator[tuple[str, str]]:
    """Yield the samples of a job on a GPU instance as dcgm-exporter has them, one a minute: metric and line."""
    labels = (
        f'gpu="0",UUID="GPU-1",Hostname="n1",GPU_I_PROFILE="3g.20gb",GPU_I_ID="2",hpc_job="{job}",cluster="{cluster}"'
    )
    for moment in range(start, end, 60):
        used = memory if abs(moment - (peak_at or start)) < 60 else memory // 2
        yield "DCGM_FI_DEV_FB_USED", f"{{{labels}}} {used} {moment}"
        yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{{{labels}}} {busy} {moment}"


def backfill(data: Path, *samples: tuple[str, str]) -> None:
    """Write samples into the database of a Prometheus that does not run yet."""
    text = ""
    for name in sorted({metric for metric, _ in samples}):
        text += f"# TYPE {name} gauge\n" + "".join(f"{name}{each}\n" for metric, each in samples if metric == name)
    (data.parent / "metrics.txt").write_text(f"{text}# EOF\n")
    promtool("tsdb", "create-blocks-from", "openmetrics", str(data.parent / "metrics.txt"), str(data))


def report(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict[str, Any], str]:
    """Return the measured use of the only type, and stderr."""
    assert main(["slurm", "report", "-o", "json", *words]) == 0
    out, err = capsys.readouterr()
    (found,) = msgspec.json.decode(out)["types"]
    return found["use"], err


def test_peaks_of_days_come_from_a_real_prometheus(
    tmp_path: Path, prometheus: MakePrometheus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = {
        # Two days, with the peak on the first one; 2g.10gb holds it.
        1: (NOW - 60 * HOUR, NOW - 12 * HOUR, 9000, 0.5, NOW - 50 * HOUR),
        2: (NOW - 10 * HOUR, NOW - 9 * HOUR, 4000, 0.25, 0),
        3: (NOW - 8 * HOUR, NOW - 7 * HOUR, 4000, 0.99, 0),  # needs the compute
    }
    samples = [
        each
        for n, (start, end, mib, busy, at) in jobs.items()
        for each in metrics(n, start, end, mib, busy, peak_at=at)
    ]
    # The exporter was away for half of this job.
    samples += metrics(4, NOW - 6 * HOUR, NOW - 5 * HOUR, 1000, 0.1)
    # A job of another cluster has the id of one of ours.
    samples += metrics(2, NOW - 10 * HOUR, NOW - 9 * HOUR, 18000, 0.1, cluster="beta")
    folder = tmp_path / "prometheus-0"
    folder.mkdir()
    backfill(folder / "data", *samples)
    server = prometheus({}, None)

    cluster = Cluster()

    @contextmanager
    def opened(*_: str) -> Iterator[Cluster]:
        yield cluster

    monkeypatch.setattr(connect, "open_client", opened)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.delenv("SLURM_CONF", raising=False)
    sacct(
        tmp_path / "bin",
        *(line(n, "COMPLETED", start, end, kind=BIG) for n, (start, end, *_) in jobs.items()),
        line(4, "COMPLETED", NOW - 6 * HOUR, NOW - 4 * HOUR, kind=BIG),
        line(5, "COMPLETED", NOW - 4 * HOUR, NOW - 3 * HOUR, kind=BIG),
    )
    ours = ("--prometheus-label", "cluster=alpha")
    use, err = report(capsys, "--since", "3d", "--prometheus", f"http://127.0.0.1:{server.port}", *ours)
    assert err == ""
    assert {key: use[key] for key in ("jobs", "judged", "memory_mib", "compute")} == {
        "jobs": 4,
        "judged": 3,
        "memory_mib": 9000,
        "compute": 0.99,
    }
    assert [(each["profile"], each["jobs"], each["device_hours"]) for each in use["suggestions"]] == [
        ("2g.10gb", 1, 48.0),
        ("1g.5gb", 1, 1.0),
    ]
    assert use["saved_gpu_hours"] == 10.65

    _, err = report(capsys, "--prometheus", f"http://127.0.0.1:{server.port}", "--prometheus-label", "cluster=gamma")
    assert "has no DCGM_FI_DEV_FB_USED with the label hpc_job" in err

    # Within a day the peak of the long job is not seen, and it did not run for a day.
    monkeypatch.setenv("ALIQUOT_PROMETHEUS", f"http://127.0.0.1:{server.port}/")
    use, _ = report(capsys, "--since", "20h", *ours)
    assert (use["jobs"], use["judged"], use["memory_mib"]) == (4, 2, 4500)
    assert main(["slurm", "report", "--since", "3d", *ours]) == 0
    assert "2g.10gb for 1 job, 1g.5gb for 1 job" in capsys.readouterr().out
