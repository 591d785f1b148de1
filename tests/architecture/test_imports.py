"""Import cycles: no module imports itself through other modules, so that each can be read after those it builds on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
TREE = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path.read_text()
    for path in SOURCE.rglob("*.py")
}


def imported(module: str, text: str, modules: dict[str, str]) -> Iterator[str]:
    """Return the modules that a source text imports anywhere: at the top, in functions, or for type checkers only."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{module} imports by a relative name"
            names = [f"{node.module}.{each.name}" for each in node.names]
        elif isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        else:
            continue
        for name in names:
            found = name if name in modules else name.rpartition(".")[0]
            if found in modules and found != module:
                yield found


def check(modules: dict[str, str]) -> None:
    """Check for import cycles. Raises CycleError, which names the modules of the cycle."""
    TopologicalSorter({name: set(imported(name, text, modules)) for name, text in modules.items()}).prepare()


def test_imports_have_no_circle() -> None:
    check(TREE)


def test_a_circle_is_found_also_where_only_types_or_functions_import() -> None:
    for way_back in ("if TYPE_CHECKING:\n    from p.a import A", "def f():\n    from p import a", "import p.a"):
        with pytest.raises(CycleError) as error:
            check({"p": "", "p.a": "from p.b import B", "p.b": "from p.c import C", "p.c": way_back})
        assert set(error.value.args[1]) == {"p.a", "p.b", "p.c"}
