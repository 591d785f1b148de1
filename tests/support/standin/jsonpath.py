"""The part of JSONPath that printer columns use.

``.spec.a``, ``.a['b.c']``, ``.a[0]``, ``.a[*].b``, ``.a[?(@.k=="v")].b``.
"""

from __future__ import annotations

import re
from typing import Any

_PART = re.compile(
    r"""\.?\['(?P<quoted>[^']+)'\]|\[(?P<index>\d+)\]|\[(?P<all>\*)\]"""
    r"""|\[\?\(@\.(?P<key>[\w.-]+)\s*==\s*["'](?P<value>[^"']*)["']\)\]|\.(?P<name>(?:[^.\[\\]|\\.)+)"""
)


def find(value: Any, path: str) -> list[Any]:
    """Return everything that the path leads to.

    Raises:
        ValueError: a path of another form
    """
    found, at = [value], 0
    while at < len(path):
        part = _PART.match(path, at)
        if part is None:
            raise ValueError(f"cannot read JSONPath {path!r} from {path[at:]!r}")
        found = [one for have in found for one in _step(have, part)]
        at = part.end()
    return [one for one in found if one is not None]


def _step(value: Any, part: re.Match[str]) -> list[Any]:
    name = part["name"].replace("\\.", ".") if part["name"] else part["quoted"]
    if name is not None:
        return [value[name]] if isinstance(value, dict) and name in value else []
    if not isinstance(value, list):
        return []
    if part["index"] is not None:
        return value[int(part["index"]) :][:1]
    if part["all"]:
        return value
    return [one for one in value if isinstance(one, dict) and one.get(part["key"]) == part["value"]]
