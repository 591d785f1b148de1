"""Check the English of pages, docstrings, comments and messages.

Usage: python tools/prose_lint.py [PATH...]     exit 1 with each place and its rule

No word of tools/prose/banned.txt. Docstrings of functions start with a verb of tools/prose/verbs.txt.
A sentence has at most 30 words and one colon. Pages wrap at 100 characters.
Code blocks, quoted code and generated files are exempt.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WORDS = 30
WIDTH = 100
CODE = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)
LINK = re.compile(r"\]\([^)]*\)")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"'*]*\s+(?=[A-Z`\"'(*\[])")
COLON = re.compile(r":(?=\s)")
OPENERS = frozenset(
    {"what", "who", "whether", "how", "why", "which", "where", "one", "no", "nothing", "something", "everything"}
)
"""Openings that leave the subject of a class or a module open."""


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: str
    line: int
    rule: str
    text: str


class Passage(NamedTuple):
    """Prose of one place."""

    line: int
    kind: str
    """``page``, ``cell`` of a table, ``docstring``, ``comment`` or ``message``."""
    text: str
    owner: str = ""
    """Of a docstring: ``function``, ``property``, ``class``, ``module``, ``field`` or ``test``."""


def _lines(name: str) -> list[str]:
    text = (ROOT / "tools/prose" / name).read_text()
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]


BANNED = [re.compile(line, re.IGNORECASE) for line in _lines("banned.txt")]
VERBS = frozenset(_lines("verbs.txt"))


def passages(path: Path) -> Iterator[Passage]:
    """Return the prose of a file."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from _python(text)
    elif path.suffix == ".md":
        yield from _markdown(text)
    elif path.suffix == ".html":
        yield from _template(text)
    else:
        yield from _comments(text)


def _python(text: str) -> Iterator[Passage]:
    nodes = list(ast.walk(ast.parse(text)))
    texts = {id(node.value): node.value for node in nodes if isinstance(node, ast.Expr) and _is_text(node.value)}
    for node in nodes:
        body = getattr(node, "body", None)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and body:
            if first := texts.pop(id(getattr(body[0], "value", None)), None):
                yield Passage(first.lineno, "docstring", ast.literal_eval(first), _owner(node))
            for field in (texts.pop(id(getattr(each, "value", None)), None) for each in body):
                if field:
                    yield Passage(field.lineno, "docstring", ast.literal_eval(field), "field")
    yield from _messages(nodes)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(token.start[0], "comment", token.string.lstrip("#: "))


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _owner(node: ast.AST) -> str:
    if isinstance(node, ast.Module):
        return "module"
    if isinstance(node, ast.ClassDef):
        return "class"
    if str(getattr(node, "name", "")).startswith("test_"):
        return "test"
    decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", [])]
    return (
        "property"
        if any(d.split(".")[-1] in ("property", "cached_property", "setter") for d in decorators)
        else "function"
    )


def _messages(nodes: Sequence[ast.AST]) -> Iterator[Passage]:
    """Return the texts that people read: three words at least. What an f-string fills in counts as one word."""
    inside = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    inside |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "_" for each in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if " " in text.strip() and len(re.findall(r"[A-Za-z]{2,}", text)) >= 3:
            yield Passage(node.lineno, "message", text)


def _markdown(text: str) -> Iterator[Passage]:
    """Return paragraphs, items and cells. Code blocks, HTML comments and headings of tables are left out."""
    text = _without_comments(text)
    block: list[str] = []
    start, fence = 0, ""
    for number, line in enumerate([*text.split("\n"), ""], 1):
        bare = line.strip()
        if fence or bare.startswith(("```", "~~~")):
            fence = "" if fence and bare.startswith(fence) else fence or bare[:3]
            bare, opens = "", False
        opens = bool(re.match(r"(?:[-*+]|\d+\.|#+|\|)\s?", bare))
        if block and (not bare or opens):
            yield Passage(start, "page", " ".join(block))
            block = []
        if bare.startswith("|"):
            yield from (
                Passage(number, "cell", cell.strip()) for cell in re.split(r"(?<!\\)\|", CODE.sub("CODE", bare))
            )
        elif bare:
            start = start if block else number
            block.append(re.sub(r"^(?:[-*+]|\d+\.|#+)\s+", "", bare))
    if block:
        yield Passage(start, "page", " ".join(block))


def _without_comments(text: str) -> str:
    return re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)


def _template(text: str) -> Iterator[Passage]:
    """Return what a template prints: its lines without tags and expressions."""
    for number, line in enumerate(text.splitlines(), 1):
        if bare := re.sub(r"\{[{%#].*?[}%#]\}|<[^>]*>", " ", line).strip():
            yield Passage(number, "message", bare)


def _comments(text: str) -> Iterator[Passage]:
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.search(r"(?:^|\s)(?:#|//)\s(.*)|/\*(.*?)\*/", line):
            yield Passage(number, "comment", found[1] or found[2] or "")


def findings(name: str, path: Path) -> Iterator[Finding]:
    """Return what breaks a rule in one file."""
    for passage in passages(path):
        prose = LINK.sub("]", CODE.sub("CODE", passage.text))
        for pattern in BANNED:
            for found in pattern.finditer(prose):
                yield Finding(name, passage.line, "banned", found[0])
        if passage.kind not in ("cell", "message"):  # they need not be sentences
            yield from _sentences(name, passage, prose)
        if passage.kind == "docstring":
            yield from _opening(name, passage)
    if path.suffix == ".md" and name not in GENERATED:
        yield from _wide(name, path)


def _sentences(name: str, passage: Passage, prose: str) -> Iterator[Finding]:
    for block in re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )|\n(?=    )|:\n", prose):
        for sentence in SENTENCE_END.split(block):
            words = [word for word in re.findall(r"[A-Za-z0-9][\w'./*:-]*", sentence) if word != "CODE"]
            if len(words) > WORDS:
                yield Finding(name, passage.line, f"sentence of {len(words)} words", " ".join(words[:8]))
            if len(COLON.findall(sentence.strip() + " ")) > 1 and passage.kind != "comment":
                yield Finding(name, passage.line, "two colons", " ".join(words[:8]))


def _opening(name: str, passage: Passage) -> Iterator[Finding]:
    words = passage.text.split()
    first = words[0].strip(".,:;()") if words else ""
    if passage.owner == "function" and first not in VERBS:
        yield Finding(name, passage.line, "docstring does not start with a verb", " ".join(words[:6]))
    if passage.owner in ("class", "module", "property") and first.lower() in OPENERS:
        yield Finding(name, passage.line, f"docstring of a {passage.owner} starts with", first)


def _wide(name: str, path: Path) -> Iterator[Finding]:
    fence = False
    for number, line in enumerate(_without_comments(path.read_text()).splitlines(), 1):
        fence ^= line.lstrip().startswith(("```", "~~~"))
        if (
            len(line) > WIDTH
            and not fence
            and not line.lstrip().startswith(("|", "<!--", "!["))
            and "](" not in line[WIDTH - 40 :]
        ):
            yield Finding(name, number, f"line of {len(line)} characters", line[:40])


GENERATED = frozenset({"docs/cli.md", "docs/metrics.md", "CHANGELOG.md", "tests/PACKAGES.md"})
SKIPPED = re.compile(r"(?:^|/)(?:recorded|golden|protos|vendor|prose)/|^LICENSE|_pb2|^CODE_OF_CONDUCT")
SUFFIXES = frozenset({"", ".py", ".md", ".html", ".sh", ".c", ".h", ".js", ".toml", ".yaml", ".yml", ".service"})


def files(words: Sequence[str]) -> list[str]:
    """Return the tracked files below the paths, or all of them."""
    listed = subprocess.run(["git", "ls-files", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [
        name
        for name in listed.splitlines()
        if Path(name).suffix in SUFFIXES and not SKIPPED.search(name) and (ROOT / name).is_file()
    ]


def main() -> int:
    found = [finding for name in files(sys.argv[1:]) for finding in findings(name, ROOT / name)]
    for finding in found:
        print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.text}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
