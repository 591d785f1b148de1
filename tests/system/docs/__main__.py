"""``python -m system.docs [--update] [PAGE...]`` in ``tests``: run the commands of pages and write the output into
them.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from .pages import every, read
from .typing_in import typed, update


def main() -> int:
    parser = argparse.ArgumentParser(prog="docs", description=__doc__)
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--update", action="store_true", help="write what was printed into the pages")
    parser.add_argument("-v", action="store_true", help="show every fault")
    options = parser.parse_args()
    bad = 0
    for path in options.pages or every():
        page = read(path.resolve())
        try:
            result = typed(page)
        except pytest.skip.Exception as reason:
            print(f"{page.name}: skipped: {reason}")
            continue
        print(f"{page.name}: {result.ran} commands, {len(result.faults)} faults", flush=True)
        if options.update:
            print(f"  {update(page, result)} outputs written")
        for fault in result.faults:
            print(f"\n{page.name}:{fault.line}: {fault.command}\n{fault.what}")
        bad += bool(result.faults)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
