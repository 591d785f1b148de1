"""The part of CEL (Common Expression Language) that admission policies and schema rules need.

It has field access and indexing, both with optional forms (``a.?b``, ``a[?'b']``, ``orValue``), ``has()``, comparison,
arithmetic, ``in``, logic with CEL's absorption of errors, the ternary, list and map literals, the macros ``all``,
``exists``, ``exists_one``, ``filter``, ``map``, and ``cel.bind``. ``cel_functions`` lists the string functions,
``cel_amounts`` those of quantities and versions.

It has no time, duration, URL, IP, regex extraction, ``authorizer``. All other syntax is refused when it is parsed, not
when it is evaluated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from support.standin import cel_functions
from support.standin.cel_functions import CelError, Optional

Tree = tuple[Any, ...]
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d+|\d+u?)|(?P<raw>r'[^']*'|r"[^"]*")|(?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>\|\||&&|==|!=|<=|>=|\.\?|\[\?|[-+*/%!<>?:.,()\[\]{}]))"""
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
_LITERALS = {"true": True, "false": False, "null": None}
_BINARY = (("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">=", "in"), ("+", "-"), ("*", "/", "%"))
MACROS = ("all", "exists", "exists_one", "filter", "map")


class CelSyntaxError(ValueError):
    """The text is not an expression that this evaluator supports."""


class _Parser:
    """Recursive descent over the tokens."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise CelSyntaxError(f"Syntax error: token recognition error at: '{text[at:].strip()[:10]}'")
            self.tokens.append((found.lastgroup or "", found[found.lastgroup or 0]))
            at = found.end()
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        text = self.peek()
        if not text or (wanted and text != wanted):
            raise CelSyntaxError(
                f"Syntax error: mismatched input '{text or '<EOF>'}' expecting '{wanted or 'operand'}'"
            )
        self.at += 1
        return text

    def accept(self, *texts: str) -> str:
        kind = self.tokens[self.at][0] if self.at < len(self.tokens) else ""
        if self.peek() in texts and (kind == "sign" or self.peek() == "in"):
            return self.take()
        return ""

    def whole(self) -> Tree:
        tree = self.expression()
        if self.peek():
            raise CelSyntaxError(f"Syntax error: mismatched input '{self.peek()}' expecting <EOF>")
        return tree

    def expression(self) -> Tree:
        condition = self.binary(0)
        if not self.accept("?"):
            return condition
        yes = self.binary(0)
        self.take(":")
        return ("if", condition, yes, self.expression())

    def binary(self, level: int) -> Tree:
        if level == len(_BINARY):
            return self.unary()
        left = self.binary(level + 1)
        while sign := self.accept(*_BINARY[level]):
            left = (sign, left, self.binary(level + 1))
        return left

    def unary(self) -> Tree:
        if self.accept("!"):
            return ("not", self.unary())
        if self.accept("-"):
            return ("negate", self.unary())
        return self.member(self.primary())

    def member(self, tree: Tree) -> Tree:
        while sign := self.accept(".", ".?", "[", "[?"):
            if sign in ("[", "[?"):
                index = self.expression()
                self.take("]")
                tree = ("index" if sign == "[" else "try index", tree, index)
                continue
            name = self.take()
            if sign == "." and self.peek() == "(":
                tree = self.method(tree, name)
            else:
                tree = ("field" if sign == "." else "try field", tree, name)
        return tree

    def method(self, target: Tree, name: str) -> Tree:
        arguments = self.arguments()
        if target == ("name", "cel") and name == "bind":
            if len(arguments) != 3 or arguments[0][0] != "name":
                raise CelSyntaxError("cel.bind() variable names must be simple identifiers")
            return ("macro", name, arguments[1], arguments[0][1], arguments[2])
        if name in MACROS:
            if len(arguments) < 2 or arguments[0][0] != "name":
                raise CelSyntaxError(f"argument of {name}() must be a simple name")
            return ("macro", name, target, arguments[0][1], *arguments[1:])
        if name not in cel_functions.METHODS:
            raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')")
        return ("call", name, target, *arguments)

    def arguments(self) -> list[Tree]:
        self.take("(")
        found: list[Tree] = []
        while not self.accept(")"):
            found.append(self.expression())
            if self.peek() != ")":
                self.take(",")
        return found

    def primary(self) -> Tree:
        if self.accept("("):
            tree = self.expression()
            self.take(")")
            return tree
        if self.accept("["):
            return ("list", *self.sequence("]"))
        if self.accept("{"):
            return ("map", *self.pairs())
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        self.take()
        if kind == "number":
            return ("value", float(text) if "." in text else int(text.rstrip("u")))
        if kind in ("string", "raw"):
            return ("value", text[2:-1] if kind == "raw" else _unescaped(text[1:-1]))
        if kind != "name":
            raise CelSyntaxError(f"Syntax error: mismatched input '{text}' expecting operand")
        if text in _LITERALS:
            return ("value", _LITERALS[text])
        return self.function(text) if self.peek() == "(" else ("name", text)

    def function(self, name: str) -> Tree:
        arguments = self.arguments()
        if name == "has":
            if len(arguments) != 1 or arguments[0][0] != "field":
                raise CelSyntaxError("invalid argument to has() macro")
            return ("has", arguments[0][1], arguments[0][2])
        if name not in cel_functions.FUNCTIONS:
            raise CelSyntaxError(f"undeclared reference to '{name}' (in container '')")
        return ("function", name, *arguments)

    def sequence(self, end: str) -> list[Tree]:
        found: list[Tree] = []
        while not self.accept(end):
            found.append(self.expression())
            if self.peek() != end:
                self.take(",")
        return found

    def pairs(self) -> list[Tree]:
        found: list[Tree] = []
        while not self.accept("}"):
            key = self.expression()
            self.take(":")
            found.append((key, self.expression()))
            if self.peek() != "}":
                self.take(",")
        return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text)


@lru_cache(maxsize=1000)
def parse(text: str) -> Tree:
    """Parse the expression to a tree.

    Raises:
        CelSyntaxError: not an expression, or one that uses what this evaluator lacks
    """
    return _Parser(text).whole()


def names(tree: Any, bound: frozenset[str] = frozenset()) -> set[str]:
    """Return the variables that an expression uses."""
    if not isinstance(tree, tuple) or not tree:
        return set()
    if tree[0] == "name":
        return set() if tree[1] in bound else {tree[1]}
    if tree[0] == "value":
        return set()
    if tree[0] == "macro":
        inner = bound | {tree[3]}
        return names(tree[2], bound) | {name for part in tree[4:] for name in names(part, inner)}
    return {name for part in tree for name in names(part, bound)}


def fault(text: str, known: tuple[str, ...] = ("self", "oldSelf")) -> str:
    """Return why an expression cannot be used, or "" if it can."""
    try:
        unknown = names(parse(text)) - set(known)
    except CelSyntaxError as error:
        return f"ERROR: <input>:1:1: {error}"
    if not unknown:
        return ""
    name = min(unknown)
    column = (re.search(rf"\b{name}\b", text) or re.match("", text)).start()  # type: ignore[union-attr]
    where = f"\n | {text}\n | {'.' * column}^"
    return f"ERROR: <input>:1:{column + 1}: undeclared reference to '{name}' (in container ''){where}"


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """Return the value of an expression.

    Raises:
        CelSyntaxError: see ``parse``
        CelError: a missing key, a wrong type, and the like
    """
    from support.standin.cel_eval import run

    return run(parse(text), dict(variables))


__all__ = ["CelError", "CelSyntaxError", "Optional", "evaluate", "fault", "names", "parse"]
