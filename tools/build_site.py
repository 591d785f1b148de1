"""Build a site in ``site/`` from the pages of the repository and the files that they link to.

Usage: python tools/build_site.py [--gather]     --gather only collects the pages in build/pages
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build/pages"
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")


def gather() -> list[Path]:
    """Copy every page, and every file that one links to, and return their places in the site.

    A link to anything else (a folder) stays a link into the repository.
    """
    shutil.rmtree(PAGES, ignore_errors=True)
    found = {ROOT / "README.md", *ROOT.glob("docs/**/*.md")}
    rest = list(found)
    while rest:
        page = rest.pop()
        for target in _LINK.findall(page.read_text()) if page.suffix == ".md" else ():
            there = (page.parent / target).resolve()
            if (
                not re.match(r"[a-z]+:", target)
                and there.is_file()
                and there.is_relative_to(ROOT)
                and there not in found
            ):
                found.add(there)
                rest.append(there)
    for page in found:
        copy = PAGES / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    return sorted(found)


def main() -> int:
    print(f"{len(gather())} pages and files")
    if "--gather" in sys.argv[1:]:
        return 0
    program = Path(sys.executable).with_name("zensical")
    return subprocess.run([str(program), "build", "--clean", "-f", "mkdocs.yml"], cwd=ROOT).returncode


if __name__ == "__main__":
    raise SystemExit(main())
