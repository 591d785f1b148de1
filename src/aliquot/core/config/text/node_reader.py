"""The base of the readers of every format: convert a node to the expected kind, or collect the error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aliquot.core.config.text.diagnostics import Diagnostics, Marked
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar, YamlDocument

Field = tuple[Scalar, Node]
ProfileNames = Callable[[], Sequence[str]]
"""Returns profile names for hints."""


def describe_node(node: Node) -> str:
    """Describe a node for a sentence."""
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


def catalog_names() -> list[str]:
    """Return every profile name of the catalog."""
    from aliquot.core.model import catalog

    return sorted({p.name for name in catalog.family_names() for p in catalog.family(name).profiles})


class YamlReader:
    """A reader that collects errors, so that one pass finds them all. ``profile_hints`` returns the names that hints
    suggest, and is called only for a name that is wrong.
    """

    def __init__(self, source: str) -> None:
        self.diagnostics = Diagnostics(source)
        self.profile_hints: ProfileNames = catalog_names

    def duplicates(self, document: YamlDocument) -> None:
        for mark, sentence in document.duplicates:
            self.diagnostics.add(mark, sentence)

    def mapping(self, node: Node, what: str) -> dict[str, Field] | None:
        """Return the fields of a mapping by key; None, with an error, for anything else."""
        if isinstance(node, Map):
            return {key.text: (key, value) for key, value in node.entries}
        self.diagnostics.add(node, f"{what} must be a mapping, not {describe_node(node)}")
        return None

    def check_keys(
        self, fields: dict[str, Field], allowed: Iterable[str], what: str, required: Sequence[str] = ()
    ) -> dict[str, Field]:
        """Report each key that is not allowed, with the closest one that is.

        Returns the fields. A key that is close to a missing ``required`` one gets that name, so that one typo is one
        error and its value is read too.
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
        """Read one text or a list of texts."""
        found = []
        for item in node.items if isinstance(node, List) else (node,):
            value = self.text(item, what)
            if value is not None and isinstance(item, Scalar):
                found.append((item, value))
        return found

    def entries(self, node: Node, what: str) -> tuple[Node, ...]:
        """Return the items of a list that must not be empty."""
        if not isinstance(node, List):
            self.diagnostics.add(node, f"{what} must be a list of entries, not {describe_node(node)}")
            return ()
        if not node.items:
            self.diagnostics.add(node, f"{what} must have at least one entry")
        return node.items

    def bad_profile(self, at: Marked, error: ValueError, text: str) -> None:
        self.diagnostics.next_step = "aliquot profiles"
        self.diagnostics.add(at, f"{error}{did_you_mean(text, self.profile_hints())}")


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `` (did you mean ...?)`` with the closest words, or with one that differs only in case. Empty if none is
    close, or if the word is one of them.
    """
    from difflib import get_close_matches

    known = list(words)
    same = [each for each in known if each.casefold() == word.casefold()]
    if same:
        return "" if word in known else f" (did you mean {same[0]}?)"
    found = [] if len(word) > 64 else get_close_matches(word, known, n=3, cutoff=0.6)
    return f" (did you mean {' or '.join(found)}?)" if found else ""


def repeated_requests(requests: Iterable[InstanceRequest]) -> list[InstanceRequest]:
    """Return the requests whose profile an earlier one of the same mapping names, in another spelling."""
    known_keys: set[object] = set()
    repeated = []
    for request in requests:
        key = (request.name, request.profile_id, request.start)
        if key in known_keys:
            repeated.append(request)
        known_keys.add(key)
    return repeated
