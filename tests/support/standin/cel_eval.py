"""Evaluate CEL trees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from support.standin.cel_functions import FUNCTIONS, METHODS, NOTHING, CelError, Optional

Tree = tuple[Any, ...]
Variables = dict[str, Any]


def run(tree: Tree, variables: Variables) -> Any:
    """Return the tree's value.

    Raises:
        CelError: it has none
    """
    kind = tree[0]
    if kind == "value":
        return tree[1]
    if kind == "name":
        if tree[1] not in variables:
            raise CelError(f"no such attribute(s): {tree[1]}")
        value = variables[tree[1]]
        return value() if callable(value) else value
    if kind in _HANDLERS:
        return _HANDLERS[kind](tree, variables)
    return _operate(kind, run(tree[1], variables), run(tree[2], variables))


def _logic(tree: Tree, variables: Variables) -> bool:
    """Evaluate ``&&`` and ``||``, which take an error on one side if the other decides."""
    decisive = tree[0] == "||"
    failed: CelError | None = None
    for side in tree[1:]:
        try:
            value = run(side, variables)
        except CelError as error:
            failed = error
            continue
        if not isinstance(value, bool):
            failed = CelError("no such overload")
        elif value is decisive:
            return decisive
    if failed is not None:
        raise failed
    return not decisive


def _choice(tree: Tree, variables: Variables) -> Any:
    condition = run(tree[1], variables)
    if not isinstance(condition, bool):
        raise CelError("no such overload")
    return run(tree[2] if condition else tree[3], variables)


def _not(tree: Tree, variables: Variables) -> bool:
    value = run(tree[1], variables)
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return not value


def _negate(tree: Tree, variables: Variables) -> Any:
    value = run(tree[1], variables)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CelError("no such overload")
    return -value


def _field(tree: Tree, variables: Variables) -> Any:
    return _select(run(tree[1], variables), tree[2], optional=tree[0] == "try field")


def _index(tree: Tree, variables: Variables) -> Any:
    return _select(run(tree[1], variables), run(tree[2], variables), optional=tree[0] == "try index")


def _select(target: Any, key: Any, *, optional: bool) -> Any:
    """Return a field or item. Of an optional, return an optional."""
    if isinstance(target, Optional):
        return _select(target.value, key, optional=True) if target.there else NOTHING
    if isinstance(target, dict) and isinstance(key, str | int | bool):
        try:
            value = target[key]  # not `in`: a map may have a default for keys that it does not contain
        except KeyError:
            value = NOTHING
        if value is not NOTHING:
            value = value() if callable(value) else value
            return Optional(True, value) if optional else value
    elif isinstance(target, list) and isinstance(key, int):
        if 0 <= key < len(target):
            return Optional(True, target[key]) if optional else target[key]
        if not optional:
            raise CelError(f"index out of bounds: {key}")
    elif not optional:
        raise CelError("no such overload")
    if optional:
        return NOTHING
    raise CelError(f"no such key: {key}")


def _has(tree: Tree, variables: Variables) -> bool:
    target = run(tree[1], variables)
    if isinstance(target, Optional):
        target = target.value if target.there else {}
    if not isinstance(target, dict):
        raise CelError("no such overload")
    return tree[2] in target and target[tree[2]] is not None


def _call(tree: Tree, variables: Variables) -> Any:
    return _apply(METHODS[tree[1]], [run(part, variables) for part in tree[2:]])


def _function(tree: Tree, variables: Variables) -> Any:
    return _apply(FUNCTIONS[tree[1]], [run(part, variables) for part in tree[2:]])


def _apply(function: Any, arguments: list[Any]) -> Any:
    try:
        return function(*arguments)
    except TypeError:
        raise CelError("no such overload") from None


def _macro(tree: Tree, variables: Variables) -> Any:
    _, name, target, variable, *bodies = tree
    rows = run(target, variables)
    if name == "bind":
        return run(bodies[0], {**variables, variable: rows})
    if not isinstance(rows, list | dict):
        raise CelError("no such overload")
    scopes = [{**variables, variable: one} for one in rows]
    if name == "map":
        chosen = [s for s in scopes if len(bodies) == 1 or run(bodies[0], s) is True]
        return [run(bodies[-1], scope) for scope in chosen]
    if name == "filter":
        return [scope[variable] for scope in scopes if run(bodies[0], scope) is True]
    if name == "exists_one":
        return sum(1 for scope in scopes if run(bodies[0], scope) is True) == 1
    return _quantified(scopes, bodies[0], decisive=name == "exists")


def _quantified(scopes: list[Variables], body: Tree, *, decisive: bool) -> bool:
    failed: CelError | None = None
    for scope in scopes:
        try:
            if bool(run(body, scope) is decisive):
                return decisive
        except CelError as error:
            failed = error
    if failed is not None:
        raise failed
    return not decisive


def _operate(sign: str, left: Any, right: Any) -> Any:
    if sign in ("==", "!="):
        same = bool(_kind(left) == _kind(right) and left == right)
        return same if sign == "==" else not same
    if sign == "in":
        if not isinstance(right, list | dict):
            raise CelError("no such overload")
        return left in right
    if _kind(left) != _kind(right) or isinstance(left, bool):
        raise CelError("no such overload")
    if sign in ("<", "<=", ">", ">="):
        if not isinstance(left, int | float | str):
            raise CelError("no such overload")
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]
    return _calculate(sign, left, right)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _calculate(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and isinstance(left, str | list | int | float):
        return left + right
    if not isinstance(left, int | float):
        raise CelError("no such overload")
    if sign in ("/", "%") and right == 0:
        raise CelError("division by zero" if sign == "/" else "modulus by zero")
    if sign == "/":
        return left / right if isinstance(left, float) else int(left / right)
    return {"-": left - right, "*": left * right, "%": left - right * int(left / right) if right else 0}[sign]


_HANDLERS: dict[str, Callable[[Tree, Variables], Any]] = {
    "||": _logic,
    "&&": _logic,
    "if": _choice,
    "not": _not,
    "negate": _negate,
    "field": _field,
    "try field": _field,
    "index": _index,
    "try index": _index,
    "has": _has,
    "call": _call,
    "function": _function,
    "macro": _macro,
    "list": lambda tree, variables: [run(part, variables) for part in tree[1:]],
    "map": lambda tree, variables: {run(key, variables): run(value, variables) for key, value in tree[1:]},
}
