"""Our code on a real kernel, with real libvirt and QEMU, in an emulated machine.

The guest runs once; each of its checks is a test here. ``make vm-kernel`` gets the kernel, and
``python tests/system/vm/run.py`` shows the same without pytest.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import pytest

from system.vm import inside, kernel, machine
from system.vm.inside.checks import ALL

inside.load()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the guest once and return its results: the first process starts it, the others wait."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with open(shared / "guest.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        book = shared / "guest.json"
        if not book.exists():
            book.write_text(json.dumps(_guest(tmp_path_factory.mktemp("guest"))))
        answer: dict[str, Any] = json.loads(book.read_text())
        return answer


def _guest(scratch: Path) -> dict[str, Any]:
    """Return ``missing`` (why it could not start), ``silent`` (it started and never came up), or the checks and the
    console.
    """
    checks: dict[str, machine.Event] = {}

    def hear(event: machine.Event) -> None:
        checks.setdefault(str(event.get("check", "")), event)

    try:
        if machine.missing():
            return {"missing": machine.missing()}
        machine.run(kernel.ready(kernel.cache()), scratch, hear)
    except kernel.MissingError as lack:
        return {"missing": str(lack)}
    except machine.SilentError as fault:
        return {"silent": str(fault)}
    return {"checks": checks, "console": machine.tail(scratch / "console")}


@pytest.mark.parametrize("name", ALL)
def test_in_the_guest(name: str, reported: dict[str, Any]) -> None:
    if "missing" in reported:
        pytest.skip(reported["missing"])
    assert "silent" not in reported, reported["silent"]
    assert name in reported["checks"], (
        f"the guest ended before it reported this check; its console:\n{reported['console']}"
    )
    outcome = reported["checks"][name]
    assert outcome["ok"], f"in the guest: {outcome['why']}\nits console:\n{reported['console']}"
