"""Objects as YAML for people: comments, literal blocks for texts of several lines, and lines for a template engine.

A mark stands where a line of its own is wanted: as a list item, or as a key whose value is null. ``line()`` makes one;
its text is written as it is, at that place's indentation.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

import yaml

Path = tuple[str | int, ...]
_MARK = re.compile(r"^(?P<indent> *)(?:- )?(?P<quote>['\"]?)@@(?P<number>\d+)@@(?P=quote)(?:: null)?$")


class Text:
    """A text of one or more objects."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def line(self, text: str) -> str:
        """Return a mark for a line of its own. ``{indent}`` becomes the blanks before it, ``{inner}`` two more."""
        self._lines.append(text)
        return f"@@{len(self._lines) - 1}@@"

    def annotate(self, item: dict[str, Any], notes: Mapping[Path, str]) -> dict[str, Any]:
        """Return a copy of the object with comments before keys and list items."""
        copied: dict[str, Any] = copy.deepcopy(item)
        for path, note in sorted(notes.items(), key=lambda each: [str(p).zfill(4) for p in each[0]], reverse=True):
            insert_before(copied, path, self.line(f"# {note}"))
        return copied

    def dump(self, item: Mapping[str, Any]) -> str:
        raw = yaml.dump(dict(item), Dumper=_Dumper, sort_keys=False, width=10_000, allow_unicode=True)
        return "".join(self._finished(line) + "\n" for line in raw.splitlines())

    def _finished(self, line: str) -> str:
        found = _MARK.match(line)
        if found is None:
            return line
        indent = found["indent"]
        text = self._lines[int(found["number"])]
        return indent + text.replace("{indent}", str(len(indent))).replace("{inner}", str(len(indent) + 2))


def insert_before(item: Any, path: Path, mark: str) -> None:
    """Put a mark before the key or list item at ``path``. Raises KeyError or IndexError if it does not exist."""
    *parents, last = path
    for step in parents:
        item = item[step]
    if isinstance(item, list):
        assert isinstance(last, int)
        item[last]
        item.insert(last, mark)
        return
    if last not in item:
        raise KeyError(path)
    rest = dict(item)
    item.clear()
    for key, value in rest.items():
        if key == last:
            item[mark] = None
        item[key] = value


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)
