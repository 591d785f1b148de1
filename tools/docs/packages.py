"""tests/PACKAGES.md: the tests of each package, according to their imports."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tools.docs.text import first, made, table

ROOT = Path(__file__).resolve().parents[2]
SOURCE, TESTS = ROOT / "src/aliquot", ROOT / "tests"
SHARED = ("support", "unit")
"""Folders that test no package beside their own."""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield from ("# Tests of each package", "", made("PACKAGES.md", "the imports of the tests"), "")
    yield "Units are beside the package in `unit`. The other tests that import a package are named by their folder;"
    yield "those that only run its commands or daemons are not seen here."
    yield ""
    others = _others()
    rows = []
    for init in sorted(SOURCE.rglob("__init__.py")):
        package = init.parent.relative_to(SOURCE).as_posix()
        if package == "." or not [path for path in init.parent.glob("*.py") if path != init]:
            continue
        units = f"`unit/{package}`" if (TESTS / "unit" / package).is_dir() else ""
        what = first(ast.get_docstring(ast.parse(init.read_text())))
        rows.append((f"`{package}`", what, units, ", ".join(f"`{each}`" for each in sorted(others[package]))))
    yield from table(("package", "what it is", "units", "other tests that import it"), rows)


def _others() -> dict[str, set[str]]:
    """Return the folders of tests that import a module of a package, by package."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(TESTS.rglob("test_*.py")):
        folder = path.parent.relative_to(TESTS).as_posix()
        if folder.split("/")[0] not in SHARED:
            for module in _imported(path):
                found[_package(module)].add("/".join(folder.split("/")[:2]))
    return found


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("aliquot"):
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _package(module: str) -> str:
    """Return the folder of a module, or of the module that defines this name."""
    parts = module.split(".")[1:]
    while parts and not (SOURCE.joinpath(*parts) / "__init__.py").exists():
        parts.pop()
    return "/".join(parts)
