"""A reader of YAML (and so JSON) into nodes with their line and column.

Unlike plain YAML 1.2, tags are refused, duplicate keys reported, and ``<<`` merges as Go's parser does. Limits bound
the cost of a hostile text: ``MAX_CHARACTERS`` of text, ``MAX_DEPTH`` levels, and ``MAX_NODES`` nodes, with every alias
counted as the copy that it stands for.

PyYAML parses; the nodes are ours. ruamel.yaml has positions too, but not these limits, and its round-trip loader takes
18 times as long as PyYAML's in C.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from aliquot.core.config.text.diagnostics import Diagnostics
from aliquot.core.config.text.yaml_scalars import resolve
from aliquot.errors import ConfigError

MAX_CHARACTERS = 8 * 1024 * 1024
MAX_NODES = 100_000
MAX_DEPTH = 50

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


class TextPosition(msgspec.Struct, frozen=True):
    """A place in a text, counted from 1."""

    line: int
    column: int


class Scalar(msgspec.Struct, frozen=True):
    """A leaf. ``text`` is the source text, ``value`` its meaning; ``plain`` is False for quoted text."""

    line: int
    column: int
    text: str
    value: bool | int | float | str | None
    plain: bool = False
    weight: int = 1


class List(msgspec.Struct, frozen=True):
    """A sequence of nodes."""

    line: int
    column: int
    items: tuple[Node, ...]
    weight: int = 1


class Map(msgspec.Struct, frozen=True):
    """A mapping. A key that is written twice is in ``entries`` twice; ``fields`` takes the last."""

    line: int
    column: int
    entries: tuple[tuple[Scalar, Node], ...]
    weight: int = 1

    def fields(self) -> dict[str, Node]:
        return {key.text: value for key, value in self.entries}


Node = Scalar | List | Map


class YamlDocument(msgspec.Struct, frozen=True):
    """A text that was read. ``root`` is None if it is empty; ``duplicates`` are keys that are written twice."""

    root: Node | None
    duplicates: tuple[tuple[TextPosition, str], ...] = ()


def read(text: str, source: str) -> YamlDocument:
    """Parse a text. Raises ConfigError if it is not YAML, too big, or not text."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(
            f"{source} is too big to be a configuration: {len(text) / 1024 / 1024:.1f} MiB, at most "
            f"{MAX_CHARACTERS // 1024 // 1024} MiB are read"
        )
    text = text.removeprefix("\ufeff")
    control = _CONTROL.search(text)
    if control is not None:
        raise ConfigError(
            f"{source} is not a text file: line {text.count(chr(10), 0, control.start()) + 1} "
            f"holds the control character {ord(control.group()):#04x}"
        )
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    builder = _Builder(source)
    try:
        for event in yaml.parse(text, Loader=loader):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        at = TextPosition(mark.line + 1, mark.column + 1) if mark else TextPosition(0, 0)
        builder.refuse(at, f"this is not YAML: {' '.join(filter(None, (error.problem, error.context)))}")
    except yaml.YAMLError as error:
        raise ConfigError(f"{source} is not a text file: {str(error).splitlines()[0]}") from error
    return builder.document()


class _Frame:
    """A list or mapping whose end has not been read yet."""

    def __init__(self, at: TextPosition, anchor: str | None, is_map: bool) -> None:
        self.at = at
        self.anchor = anchor
        self.is_map = is_map
        self.nodes: list[Node] = []


class _Builder:
    """Builds the tree from parser events, without recursion."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.root: Node | None = None
        self.duplicates: list[tuple[TextPosition, str]] = []
        self._stack: list[_Frame] = []
        self._anchors: dict[str, Node | None] = {}
        self._documents = 0
        self._events = 0

    def refuse(self, at: TextPosition, sentence: str) -> None:
        """Stop reading: what follows cannot be trusted."""
        diagnostics = Diagnostics(self.source)
        diagnostics.add(at, sentence)
        diagnostics.check()

    def take(self, event: Any) -> None:
        kind = type(event).__name__
        self._events += 1
        if self._events > 2 * MAX_NODES:
            self.refuse(self._at(event), f"this holds more than {MAX_NODES} values")
        if kind == "ScalarEvent":
            self.scalar(self._at(event), event.anchor, event.value, not event.style)
        elif kind in ("SequenceStartEvent", "MappingStartEvent"):
            self.start(self._at(event), event.anchor, kind == "MappingStartEvent")
        elif kind in ("SequenceEndEvent", "MappingEndEvent"):
            self.end()
        elif kind == "AliasEvent":
            self._alias(event)
        elif kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                self.refuse(self._at(event), "a second YAML document starts here: write one document per file")

    def scalar(self, at: TextPosition, anchor: str | None, text: str, plain: bool) -> None:
        value = resolve(text) if plain else text
        self._finish(Scalar(at.line, at.column, text, value, plain), anchor)

    def start(self, at: TextPosition, anchor: str | None, is_map: bool) -> None:
        if len(self._stack) >= MAX_DEPTH:
            self.refuse(at, f"nested deeper than {MAX_DEPTH} levels")
        if anchor:
            self._anchors[anchor] = None
        self._stack.append(_Frame(at, anchor, is_map))

    def end(self) -> None:
        frame = self._stack.pop()
        self._finish(self._map(frame) if frame.is_map else self._list(frame), frame.anchor)

    def document(self) -> YamlDocument:
        return YamlDocument(self.root, tuple(self.duplicates))

    def _at(self, event: Any) -> TextPosition:
        at = TextPosition(event.start_mark.line + 1, event.start_mark.column + 1)
        if getattr(event, "tag", None) is not None:
            self.refuse(at, f"the tag {event.tag!r} is not allowed here: write the plain value")
        return at

    def _finish(self, node: Node, anchor: str | None) -> None:
        if node.weight > MAX_NODES:
            self.refuse(
                TextPosition(node.line, node.column), f"this holds more than {MAX_NODES} values, aliases counted"
            )
        if anchor:
            self._anchors[anchor] = node
        if self._stack:
            self._stack[-1].nodes.append(node)
        else:
            self.root = node

    def _alias(self, event: Any) -> None:
        at = self._at(event)
        node = self._anchors.get(event.anchor)
        if node is None:
            self.refuse(at, f"the alias *{event.anchor} does not refer to a complete node before it")
            return
        self._finish(node, None)

    def _list(self, frame: _Frame) -> List:
        return List(frame.at.line, frame.at.column, tuple(frame.nodes), 1 + sum(n.weight for n in frame.nodes))

    def _map(self, frame: _Frame) -> Map:
        weight = 1 + sum(n.weight for n in frame.nodes)
        own: dict[str, tuple[Scalar, Node]] = {}
        entries: list[tuple[Scalar, Node]] = []
        merged: list[tuple[Scalar, Node]] = []
        for key, value in zip(frame.nodes[::2], frame.nodes[1::2], strict=True):
            if not isinstance(key, Scalar):
                self.refuse(TextPosition(key.line, key.column), "a list or mapping cannot be a key")
                continue
            if key.plain and key.text == "<<":
                merged += self._merge(value)
                continue
            if key.text in own:
                first = own[key.text][0].line
                self.duplicates.append(
                    (
                        TextPosition(key.line, key.column),
                        f"the key {key.text!r} is written twice (first in line {first})",
                    )
                )
            own[key.text] = (key, value)
            entries.append((key, value))
        inherited = {key.text: (key, value) for key, value in reversed(merged) if key.text not in own}
        return Map(frame.at.line, frame.at.column, (*inherited.values(), *entries), weight)

    def _merge(self, value: Node) -> list[tuple[Scalar, Node]]:
        maps = value.items if isinstance(value, List) else (value,)
        found: list[tuple[Scalar, Node]] = []
        for node in maps:
            if isinstance(node, Map):
                found += node.entries
            else:
                self.refuse(TextPosition(value.line, value.column), "<< merges a mapping or a list of mappings")
        return found
