"""``aliquot metrics``: once, as a file, and served to a real Prometheus; and a host whose GPUs cannot be read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from aliquot.foundation.driver_calls import VARIABLE
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient
from support import forkserver
from system.prometheus.bed import PATIENCE_S, check_metrics
from system.prometheus.conftest import MakePrometheus


@pytest.fixture
def state(tmp_path: Path) -> Iterator[str]:
    folder = str(tmp_path / "state")
    control.start(folder, "a100-sxm4-40gb*2", "machine", "none")
    yield folder
    control.stop(folder)


def aliquot(state: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ALIQUOT_STATE_DIR": state, "ALIQUOT_SIM": "machine", **variables}
    return forkserver.run([sys.executable, "-m", "aliquot", *words], env=environment, capture_output=True, text=True)


@contextmanager
def serving(state: str, folder: Path, *words: str, **variables: str) -> Iterator[str]:
    """Run the verb as a process that listens. Yield its address."""
    environment = {**os.environ, "ALIQUOT_STATE_DIR": state, "ALIQUOT_SIM": "machine", "PYTHONUNBUFFERED": "1"}
    environment |= variables
    log = folder / "metrics.log"
    with open(log, "wb") as out:
        process = forkserver.Popen([sys.executable, "-m", "aliquot", *words], env=environment, stderr=out, stdout=out)
    try:
        end = time.monotonic() + PATIENCE_S
        while not (found := re.search(r"http://(\S+)/metrics", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.05)
        yield found.group(1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_once_and_as_a_file(state: str, tmp_path: Path) -> None:
    aliquot(state, "apply", "--gpu", "0", "--mig", "3g.20gb,1g.5gb")
    printed = aliquot(state, "metrics")
    assert printed.returncode == 0
    assert check_metrics(printed.stdout.encode()) == ""
    assert 'aliquot_drift{Hostname="machine",kind="none"} 0.0' in printed.stdout
    target = tmp_path / "aliquot.prom"
    target.write_text("# HELP aliquot_gpus half of an old one")
    assert aliquot(state, "metrics", "--out", str(target)).returncode == 0
    assert 'aliquot_gpus{Hostname="machine"} 2.0' in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o644
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "a temporary file was left"


def test_a_full_disk_is_not_an_error_of_ours(state: str) -> None:
    environment = {**os.environ, "ALIQUOT_STATE_DIR": state, "ALIQUOT_SIM": "machine"}
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "aliquot", "metrics"]
        done = forkserver.run(words, env=environment, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.partition(":")[0]) == (20, "blocked[STORAGE]")


def test_gpus_that_cannot_be_read_are_reported_and_nothing_old_is_left(state: str, tmp_path: Path) -> None:
    target = tmp_path / "aliquot.prom"
    aliquot(state, "metrics", "--out", str(target))
    failed = aliquot(state, "metrics", "--sim", "gone", "--out", str(target))
    assert failed.returncode == 20
    assert "no simulated node 'gone'" in failed.stderr
    assert 'aliquot_look_success{Hostname="gone"} 0.0' in target.read_text()
    assert "aliquot_gpu_info" not in target.read_text()


@pytest.mark.parametrize(
    ("words", "code", "output"),
    [
        (("--listen", "nowhere"), 2, "invalid listen address"),
        (("--listen", "192.0.2.1:0"), 20, "cannot listen"),
        (("--listen", "0", "--out", "x.prom"), 2, "exclude each other"),
        (("--listen", "0", "--every", "0"), 2, "between 1 and 3600"),
        (("--out", "/nonexistent/x.prom"), 20, "cannot write"),
    ],
)
def test_bad_input_is_refused(state: str, words: tuple[str, ...], code: int, output: str) -> None:
    done = aliquot(state, "metrics", *words)
    assert (done.returncode, output in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


HANGS = {VARIABLE: "0.8", "ALIQUOT_BACKEND": "shim"}


def scraped(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        return str(answer.read().decode())


def until(address: str, line: str) -> str:
    """Scrape until a page has that line, and return the page."""
    end = time.monotonic() + PATIENCE_S
    while line not in (page := scraped(address)):
        assert time.monotonic() < end, page
        time.sleep(0.1)
    return page


@pytest.mark.parametrize("before", [True, False], ids=["from the start", "later"])
def test_while_the_driver_hangs_a_scrape_says_so_and_the_process_ends(state: str, tmp_path: Path, before: bool) -> None:
    driver = SimClient(state, "machine")
    if before:
        driver.inject_fault("hang")
    with serving(state, tmp_path, "metrics", "--listen", "127.0.0.1:0", "--every", "1", **HANGS) as address:
        if not before:
            until(address, 'aliquot_look_success{Hostname="machine"} 1.0')
            driver.inject_fault("hang")
        page = until(address, 'aliquot_look_success{Hostname="machine"} 0.0')
        assert "aliquot_gpu_info{" not in page, "what was seen before the hang may be otherwise by now"
        seconds = re.search(r'aliquot_driver_call_seconds\{Hostname="machine"\} (\S+)', scraped(address))
        assert seconds is not None
        assert float(seconds[1]) > 0
        while "the driver has not returned from" not in (tmp_path / "metrics.log").read_text():
            until(address, 'aliquot_look_success{Hostname="machine"} 0.0')
        driver.inject_fault("none")
        until(address, 'aliquot_look_success{Hostname="machine"} 1.0')
        driver.inject_fault("hang")
        until(address, 'aliquot_look_success{Hostname="machine"} 0.0')
        began = time.monotonic()
    assert time.monotonic() - began < 10


def test_a_file_says_that_the_driver_hangs(state: str, tmp_path: Path) -> None:
    target = tmp_path / "aliquot.prom"
    aliquot(state, "metrics", "--out", str(target))
    assert 'aliquot_look_success{Hostname="machine"} 1.0' in target.read_text()
    SimClient(state, "machine").inject_fault("hang")
    done = aliquot(state, "metrics", "--out", str(target), **HANGS)
    assert done.returncode == 40, done.stderr
    assert "the driver has not returned from" in done.stderr
    assert 'aliquot_look_success{Hostname="machine"} 0.0' in target.read_text()
    assert "aliquot_gpu_info{" not in target.read_text()


@pytest.mark.slow
def test_served_and_scraped_while_the_machine_changes(state: str, tmp_path: Path, prometheus: MakePrometheus) -> None:
    aliquot(state, "apply", "--gpu", "0", "--mig", "1g.5gb@0,1g.5gb@2,1g.5gb@4,1g.5gb@6")
    with serving(state, tmp_path, "metrics", "--listen", "127.0.0.1:0", "--every", "1") as address:
        asked = prometheus({"aliquot": [address]}, None)
        asked.until(lambda: asked.value("sum(aliquot_instances)") == 4, "4 instances")
        wide = '{profile="3g.20gb", gpu="0", arrangement='
        assert asked.value(f"aliquot_gpu_profile_fits{wide}'now'}}") == 0
        assert asked.value(f"aliquot_gpu_profile_fits{wide}'repacked'}}") == 1
        assert asked.value('aliquot_gpu_free_memory_slices{gpu="0"}') == 4
        one = asked.query("aliquot_instance_info")[0][0]["GPU_I_ID"]
        held = aliquot(state, "sim", "hold", "0", one, "--memory", "1000")
        assert held.returncode == 0, held.stderr
        asked.until(lambda: asked.value('sum(aliquot_instances{state="held"})') == 1, "one is held")
        assert asked.value("count(aliquot_instance_idle_since_timestamp_seconds)") == 3
        assert asked.value("sum(aliquot_instance_held)") == 1
        assert asked.value(f'aliquot_instance_memory_used_bytes{{GPU_I_ID="{one}"}} >= 1000 * 1024 * 1024')
        assert asked.value('count(aliquot_instance_memory_size_bytes{GPU_I_PROFILE="1g.5gb"} > 4e9)') == 4
        other = aliquot(state, "apply", "--gpu", "0", "--mig", "disabled", "--policy", "force")
        assert other.returncode == 0, f"the page's look kept the GPU from its reset: {other.stderr}"
        asked.until(lambda: asked.value("sum(aliquot_instances)") is None, "no instances")
        assert asked.value('aliquot_gpu_mig_enabled{gpu="0"}') == 0
