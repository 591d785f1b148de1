"""What the readers of every format share: taking a node for what it should be, or noting the fault."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aliquot.core.config.text.diagnostics import Diagnostics, Marked
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar, YamlDocument

Field = tuple[Scalar, Node]


def describe_node(node: Node) -> str:
    """What a node is, for a sentence."""
    if isinstance(node, Map):
        return "a mapping"
    if isinstance(node, List):
        return "a list"
    if node.value is None:
        return "nothing"
    if isinstance(node.value, bool):
        return f"the boolean {node.text}"
    if isinstance(node.value, int | float):
        return f"the number {node.text}"
    return f"the text {node.text[:60]!r}"


class YamlReader:
    """Faults are noted, not raised, so that one pass finds them all. ``profile_hints`` are the names that hints offer,
    every known one where there are none.
    """

    profile_hints: tuple[str, ...] = ()

    def __init__(self, source: str) -> None:
        self.diagnostics = Diagnostics(source)

    def duplicates(self, document: YamlDocument) -> None:
        for mark, sentence in document.duplicates:
            self.diagnostics.add(mark, sentence)

    def mapping(self, node: Node, what: str) -> dict[str, Field] | None:
        """The fields of a mapping by key; None, with a fault, for anything else."""
        if isinstance(node, Map):
            return {key.text: (key, value) for key, value in node.entries}
        self.diagnostics.add(node, f"{what} must be a mapping, not {describe_node(node)}")
        return None

    def check_keys(
        self, fields: dict[str, Field], allowed: Iterable[str], what: str, required: Sequence[str] = ()
    ) -> dict[str, Field]:
        """A fault for each key that is not allowed, with the closest one that is. Returns the fields, one that is
        close to a ``required`` and missing one under that name: one slip is one fault, and the rest is read as well.
        """
        names, corrected = tuple(allowed), dict(fields)
        for name, (key, value) in fields.items():
            if name not in names:
                missing = next((each for each in required if each not in corrected and did_you_mean(name, [each])), "")
                if missing:
                    corrected[missing] = (key, value)
                hint = did_you_mean(name, [missing] if missing else names)
                self.diagnostics.add(
                    key, f"unknown key {name!r} in {what}{hint or ' (known: ' + ', '.join(names) + ')'}"
                )
        return corrected

    def text(self, node: Node, what: str) -> str | None:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            return node.value
        quote = f': write it in quotes, "{node.text[:60]}"' if isinstance(node, Scalar) and node.text else ""
        self.diagnostics.add(node, f"{what} must be text, not {describe_node(node)}{quote}")
        return None

    def texts(self, node: Node, what: str) -> list[tuple[Scalar, str]]:
        """One text or a list of texts."""
        found = []
        for item in node.items if isinstance(node, List) else (node,):
            value = self.text(item, what)
            if value is not None and isinstance(item, Scalar):
                found.append((item, value))
        return found

    def entries(self, node: Node, what: str) -> tuple[Node, ...]:
        """The items of a list that must not be empty."""
        if not isinstance(node, List):
            self.diagnostics.add(node, f"{what} must be a list of entries, not {describe_node(node)}")
            return ()
        if not node.items:
            self.diagnostics.add(node, f"{what} must have at least one entry")
        return node.items

    def bad_profile(self, at: Marked, error: ValueError, text: str) -> None:
        self.diagnostics.next_step = "aliquot profiles"
        self.diagnostics.add(at, f"{error}{did_you_mean(text, self.profile_hints or catalog_names())}")


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`` (did you mean ...?)`` with the closest of some words, that one alone where only the case is wrong; nothing if
    none is close or it is one.
    """
    from difflib import get_close_matches

    known = list(words)
    same = [each for each in known if each.casefold() == word.casefold()]
    if same:
        return "" if word in known else f" (did you mean {same[0]}?)"
    found = [] if len(word) > 64 else get_close_matches(word, known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(found)}?)" if found else ""


def catalog_names() -> list[str]:
    """Every profile name of the catalog."""
    from aliquot.core.model import catalog

    return sorted({p.name for name in catalog.family_names() for p in catalog.family(name).profiles})


def repeated_requests(requests: Iterable[InstanceRequest]) -> list[InstanceRequest]:
    """The wishes whose profile was asked before in the same mapping, under another spelling."""
    known_keys: set[object] = set()
    repeated = []
    for request in requests:
        key = (request.name, request.profile_id, request.start)
        if key in known_keys:
            repeated.append(request)
        known_keys.add(key)
    return repeated
