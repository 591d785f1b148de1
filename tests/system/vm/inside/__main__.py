"""The guest's side: every check in order, with the outcome of each as one line of JSON. It refuses to run anywhere
else.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from system.vm.inside import load
from system.vm.inside.checks import ALL, run

MARK = "aliquot.guest=1"
"""A word on the guest's kernel command line, and on no other: the checks rebind drivers and remove files."""


def main() -> int:
    """Return 0 if every check passed."""
    if MARK not in Path("/proc/cmdline").read_text().split():
        print("these checks change the machine that they run on: make test-vm runs them in a guest", file=sys.stderr)
        return 2
    load()
    failed = 0
    with open("/dev/ttyS1", "w", encoding="utf-8") as line:

        def report(event: dict[str, object]) -> None:
            print(json.dumps(event), file=line, flush=True)

        report({"up": float(Path("/proc/uptime").read_text().split()[0]), "kernel": os.uname().release})
        for name in ALL:
            outcome = run(name)
            failed += not outcome["ok"]
            report(outcome)
        report({"end": failed})
    return min(failed, 1)


sys.exit(main())
