"""Import cycles: no module imports itself through other modules, so that each can be read after those it builds on."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from support.syntax import nodes

SOURCE = Path(__file__).resolve().parents[2] / "src"


def imported(module: str, every: Iterable[ast.AST], modules: Collection[str]) -> Iterator[str]:
    """Return the modules that a source imports anywhere: at the top, in functions, or for type checkers only."""
    for node in every:
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


def check(modules: Mapping[str, Iterable[ast.AST]]) -> None:
    """Check for import cycles. Raises CycleError, which names the modules of the cycle."""
    TopologicalSorter({name: set(imported(name, every, modules)) for name, every in modules.items()}).prepare()


def test_imports_have_no_circle() -> None:
    check(
        {
            ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): nodes(path)
            for path in SOURCE.rglob("*.py")
        }
    )


def test_a_circle_is_found_also_where_only_types_or_functions_import() -> None:
    for way_back in ("if TYPE_CHECKING:\n    from p.a import A", "def f():\n    from p import a", "import p.a"):
        texts = {"p": "", "p.a": "from p.b import B", "p.b": "from p.c import C", "p.c": way_back}
        modules = {name: list(ast.walk(ast.parse(text))) for name, text in texts.items()}
        with pytest.raises(CycleError) as error:
            check(modules)
        assert set(error.value.args[1]) == {"p.a", "p.b", "p.c"}
