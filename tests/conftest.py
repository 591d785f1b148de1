"""Settings for all tests: the fork server, retries, and required layers.

A skip in a required layer is a failure: ``ALIQUOT_REQUIRE`` names these layers (folders of ``tests``).
"""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from aliquot.sim import lifecycle as control
from support import forkserver
from support.layers import folders, layer

pytest_plugins = ["support.distribution", "support.measuring", "support.selection"]
HERE = Path(__file__).resolve().parent
REQUIRED = {name for name in os.environ.get("ALIQUOT_REQUIRE", "").split(",") if name}
RETRIED = frozenset({"browser", "containers", "docs", "libvirt", "prometheus", "slurm", "vm"})
"""Layers whose tests use programs that are not ours. The suite retries a failed test of them once and reports the first
failure in any case, because those programs are slow on a busy host. A failure in any other layer is a failure.
"""
ELSEWHERE = (
    "KUBEBUILDER_ASSETS",
    "kubelet",
    "containerd",
    "podman",
    "containers need root",
    "chroot needs root",
    "no namespaces and control groups",
    "no control groups",
    "no systemd is installed",
    "this machine has VFIO",
)
"""Texts in the reasons of skips that are accepted in any layer: no package contains the component, or running it needs
rights that a build host may lack. The run lists these skips.
"""


def _one_build_of_the_shim() -> None:
    """Build the shim once per run instead of once per test: it is the same for every state directory. The first process
    creates it, and only that process removes it, not its workers and children.
    """
    if "ALIQUOT_CACHE_DIR" in os.environ:
        return
    folder, owner = tempfile.mkdtemp(prefix="aliquot-shim-"), os.getpid()
    os.environ["ALIQUOT_CACHE_DIR"] = folder

    def remove() -> None:
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)


_one_build_of_the_shim()

control.launch = forkserver.launch

unknown = REQUIRED - {path.name for path in folders()}
if unknown:
    raise pytest.UsageError(f"ALIQUOT_REQUIRE names layers that do not exist: {', '.join(sorted(unknown))}")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the fork server from the main thread, in each process that runs tests. A shell script starts background
    runs with SIGINT ignored, which the commands under test would inherit.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    distributed = not hasattr(session.config, "workerinput") and session.config.getoption("numprocesses", None)
    if not distributed and not session.config.option.collectonly:
        forkserver.prepare()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze the collected objects for the garbage collector: they stay until the end, and each pass over them is
    slow.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that may be retried."""
    for item in items:
        if layer(item.path) in RETRIED:
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skip of a required layer into a failure that gives the reason."""
    report = yield
    name = layer(item.path)
    reason: Any = report.longrepr
    if report.skipped and name in REQUIRED and not hasattr(report, "wasxfail") and not _elsewhere(reason):
        report.outcome = "failed"
        report.longrepr = f"{name} must run here (ALIQUOT_REQUIRE), but it was skipped: {reason[2]}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the API servers that the Kubernetes tests ran on."""
    reports = [report for rows in terminalreporter.stats.values() for report in rows]
    players = ("system/kubernetes/", "system/harvester/")
    if any(name in getattr(report, "nodeid", "") for report in reports for name in players):
        from support.cluster import summary

        terminalreporter.write_line(summary())


def _elsewhere(reason: Any) -> bool:
    return any(words in str(reason[2]) for words in ELSEWHERE)
