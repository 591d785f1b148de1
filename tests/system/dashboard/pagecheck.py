"""A strict HTML checker: elements are closed, ids are unique, and controls have accessible names."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise

VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())  # noqa: SIM905
INSIDE_P = frozenset("div form ul ol dl table section article p h1 h2 h3 h4 pre fieldset nav".split())  # noqa: SIM905
"""Elements that end a paragraph in a browser, even without a closing tag."""


class Document(HTMLParser):
    """A parsed document with its ``faults``, the number of elements (``count``) and its ``text``."""

    def __init__(self, html: str, *, fragment: bool = False) -> None:
        super().__init__(convert_charrefs=True)
        self.faults: list[str] = []
        self.open: list[str] = []
        self.count = 0
        self.ids: dict[str, str] = {}
        self.refers: list[str] = []
        self.labels: set[str] = set()
        self.controls: list[tuple[str, dict[str, str]]] = []
        self.headings: list[tuple[int, str]] = []
        self.links: list[str] = []
        self.texts: list[str] = []
        self.tags: dict[str, int] = {}
        self._label_depth = 0
        self.feed(html)
        self.close()
        if self.open:
            self.faults.append(f"never closed: {self.open}")
        self._judge(fragment)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if len(given) != len(attrs):
            self.faults.append(f"<{tag}> has an attribute twice: {attrs}")
        self.count += 1
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self._attributes(tag, given)
        if tag in INSIDE_P and "p" in self.open:
            self.faults.append(f"<{tag}> in <p>")
        if tag == "form" and "form" in self.open:
            self.faults.append("<form> in <form>")
        if tag in ("a", "button") and ("a" in self.open or "button" in self.open):
            self.faults.append(f"<{tag}> in a link or button")
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append((int(tag[1]), given.get("id", "")))
        if tag not in VOID:
            self.open.append(tag)
            self._label_depth += tag == "label"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1] != tag:
            self.faults.append(f"</{tag}> closes {self.open[-1:] or 'nothing'}")
            return
        self.open.pop()
        self._label_depth -= tag == "label"

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def _attributes(self, tag: str, given: dict[str, str]) -> None:
        if "style" in given or any(name.startswith("on") for name in given):
            self.faults.append(f"<{tag}> has style or script in it: {given}")
        if tag == "style" or (tag == "script" and "src" not in given):
            self.faults.append(f"<{tag}> in the page")
        if "id" in given:
            if given["id"] in self.ids:
                self.faults.append(f"id {given['id']!r} is there twice")
            self.ids[given["id"]] = tag
        for name in ("aria-labelledby", "aria-describedby"):
            self.refers += given.get(name, "").split()
        if tag == "label" and "for" in given:
            self.labels.add(given["for"])
            self.refers.append(given["for"])
        hidden = given.get("type") == "hidden"
        if tag in ("input", "select", "textarea") and not hidden and not self._label_depth:
            self.controls.append((tag, given))
        if (
            tag == "svg"
            and given.get("role") == "img"
            and not (given.get("aria-label") or given.get("aria-labelledby"))
        ):
            self.faults.append("a picture without words")
        if tag == "th" and "scope" not in given:
            self.faults.append("<th> without scope")
        if tag == "form" and given.get("method") == "post" and not given.get("action", "").startswith("/"):
            self.faults.append("a form that posts nowhere")
        if tag == "a":
            self.links.append(given.get("href", ""))

    def _judge(self, fragment: bool) -> None:
        for tag, given in self.controls:
            if given.get("id") not in self.labels and not given.get("aria-label"):
                self.faults.append(f"<{tag}> without a label: {given}")
        if fragment:
            return
        self.faults += [f"nothing has the id {id!r}" for id in self.refers if id not in self.ids]
        levels = [level for level, _ in self.headings]
        if levels[:1] != [1] or levels.count(1) != 1:
            self.faults.append(f"headings start with one h1: {levels}")
        self.faults += [f"h{b} after h{a}" for a, b in pairwise(levels) if b > a + 1]
        self.faults += [f"a link to {link!r}" for link in self.links if not link.startswith(("/", "#"))]
        if self.tags.get("table", 0) != self.tags.get("caption", 0):
            self.faults.append("a table without a caption")
        if self.tags.get("main") != 1:
            self.faults.append("not one main part")
