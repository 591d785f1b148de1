"""Make docs/cli.md, scripts/aliquot.1, docs/reference, docs/pictures/*.svg and tests/PACKAGES.md from the code.

Usage: python tools/build_docs.py [--check] [PAGE...]     exit 1 if --check finds a difference
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from tools.docs import catalog, cli, config, crds, errors, flows, imports, man, packages, slices, states  # noqa: E402

PAGES: dict[str, Callable[[], str]] = {
    "docs/cli.md": cli.page,
    "scripts/aliquot.1": man.page,
    "docs/reference/config.md": config.page,
    "docs/reference/errors.md": errors.page,
    "docs/reference/crds.md": crds.page,
    "docs/reference/states.md": states.page,
    "docs/reference/catalog.md": catalog.page,
    "docs/pictures/imports.svg": imports.page,
    "docs/pictures/sharing-modes.svg": slices.sharing,
    "docs/pictures/mig-placements.svg": slices.placements,
    "docs/pictures/mig-fragmentation.svg": slices.fragmentation,
    "docs/pictures/vgpu-frameworks.svg": flows.frameworks,
    "docs/pictures/holders.svg": flows.holders,
    "docs/pictures/change.svg": flows.change,
    "docs/pictures/agent-cycle.svg": flows.agent,
    "docs/pictures/node-states.svg": flows.node_states,
    "tests/PACKAGES.md": packages.page,
}


def main() -> int:
    words = sys.argv[1:]
    chosen = [word for word in words if word != "--check"] or list(PAGES)
    stale = []
    for name in chosen:
        wanted, target = PAGES[name](), ROOT / name
        if target.exists() and target.read_text() == wanted:
            continue
        stale.append(name)
        if "--check" not in words:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(wanted)
            print(f"wrote {name}")
    if "--check" in words:
        print(f"{', '.join(stale)}: stale: run python tools/build_docs.py" if stale else "the pages are current")
        return 1 if stale else 0
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
