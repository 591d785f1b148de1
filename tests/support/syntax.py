"""Syntax trees of Python files. Each file is parsed once in a process, for all tests that read it."""

from __future__ import annotations

import ast
import gc
from functools import cache
from pathlib import Path


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of a file, the module first. Raises OSError, SyntaxError."""
    # The garbage collector would look through a million nodes again and again: they cost it more than the parser.
    collecting = gc.isenabled()
    gc.disable()
    try:
        found = tuple(ast.walk(ast.parse(path.read_text())))
        gc.freeze()
        return found
    finally:
        if collecting:
            gc.enable()


def tree(path: Path) -> ast.Module:
    """Return the tree of a file. Raises OSError, SyntaxError."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module
