"""The pages build into a site, and every page is in its table of contents."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .pages import HOUSE, every

FROM_ELSEWHERE = re.compile(
    r"""<(?:script|link|img|iframe)[^>]*(?:src|href)=["']?(?:https?:)?//[^>]*|class=["']?mermaid"""
)
"""References that make a browser load from another host. For mermaid diagrams the theme loads the renderer."""


def _pages(rows: object) -> list[str]:
    if isinstance(rows, str):
        return [rows]
    if isinstance(rows, dict):
        return [page for value in rows.values() for page in _pages(value)]
    return [page for row in rows for page in _pages(row)] if isinstance(rows, list) else []


def test_every_page_is_in_the_table_of_contents() -> None:
    nav = _pages(yaml.safe_load((HOUSE / "mkdocs.yml").read_text())["nav"])
    assert len(nav) == len(set(nav))
    assert {str(p.relative_to(HOUSE)) for p in every()} <= set(nav)
    assert [page for page in nav if not (HOUSE / page).is_file()] == []


@pytest.mark.slow
def test_it_builds_without_a_complaint(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("zensical")
    if not program.exists():
        pytest.skip("zensical is not installed")
    folders = ("docs", "deploy", "catalog", "benchmarks", "tests/system/docs", "tools")
    for name in folders:
        shutil.copytree(HOUSE / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "mig", "vgpu"))
    for page in [*HOUSE.glob("*.md"), HOUSE / "mkdocs.yml"]:
        shutil.copy(page, tmp_path)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "tools/build_site.py")], capture_output=True, text=True, cwd=tmp_path
    )
    answer = done.stdout + done.stderr
    assert done.returncode == 0, answer
    assert "No issues found" in answer
    assert (tmp_path / "site/docs/tutorial/index.html").is_file()
    for page in (tmp_path / "site").rglob("*.html"):
        assert not FROM_ELSEWHERE.findall(page.read_text()), f"{page.name} needs a network"
