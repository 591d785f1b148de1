"""Our lines in a gres.conf that others may edit too: one managed block per Slurm node. Pure.

    # aliquot: begin n1 5f2a91c07b3e
    NodeName=n1 Name=gpu ...
    # aliquot: end n1

The digest covers the lines in between: a digest that does not match means a manual edit.
"""

from __future__ import annotations

import hashlib

import msgspec

BEGIN = "# aliquot: begin {node} {digest}"
END = "# aliquot: end {node}"


class ManagedBlock(msgspec.Struct, frozen=True):
    """A node's managed block."""

    node: str
    first: int
    """The line number of the begin mark, from 1."""
    last: int
    """The line number of the end mark. Without an end mark, the last line before the next begin mark, or of the file.
    """
    digest: str
    lines: tuple[str, ...]

    @property
    def edited(self) -> bool:
        """True if the lines were edited after they were written."""
        return digest(self.lines) != self.digest


def digest(body: tuple[str, ...]) -> str:
    """Return the digest of the lines between the marks, ignoring trailing white space."""
    return hashlib.sha256("\n".join(line.rstrip() for line in body).encode(errors="surrogateescape")).hexdigest()[:12]


def render_block(node: str, body: tuple[str, ...]) -> str:
    """Return a block as text; each line ends with a newline."""
    marks = BEGIN.format(node=node, digest=digest(body)), END.format(node=node)
    return "\n".join([marks[0], *body, marks[1]]) + "\n"


def blocks(text: str) -> tuple[ManagedBlock, ...]:
    """Return the blocks of a file, in order."""
    found: list[ManagedBlock] = []
    every = text.split("\n")
    if every[-1] == "":
        every.pop()
    begin: tuple[int, str, str] | None = None
    for number, line in enumerate(every, start=1):
        words = line.split()
        if words[:3] == ["#", "aliquot:", "begin"] and len(words) > 3:
            if begin:
                found.append(_made(begin, number - 1, every[begin[0] : number - 1]))
            begin = number, words[3], words[4] if len(words) > 4 else ""
        elif begin and words[:3] == ["#", "aliquot:", "end"] and words[3:] == [begin[1]]:
            found.append(_made(begin, number, every[begin[0] : number - 1]))
            begin = None
    if begin:
        found.append(_made(begin, len(every), every[begin[0] :]))
    return tuple(found)


def _made(begin: tuple[int, str, str], last: int, body: list[str]) -> ManagedBlock:
    return ManagedBlock(begin[1], begin[0], last, begin[2], tuple(line.rstrip("\r") for line in body))


def block_of(text: str, node: str) -> ManagedBlock | None:
    """Return the first block of a node, or None."""
    return next((each for each in blocks(text) if each.node == node), None)


def replace_block(text: str, node: str, body: tuple[str, ...]) -> str:
    """Return a file with a node's block replaced, or appended if it is new. All other bytes stay the same.

    Without lines, the block is removed.
    """
    mine = [each for each in blocks(text) if each.node == node]
    new = [render_block(node, body)] if body else []
    if not mine:
        gap = "" if not text or text.endswith("\n") or not new else "\n"
        return text + gap + "".join(new)
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    for each in reversed(mine):
        lines[each.first - 1 : each.last] = new if each is mine[0] else []
    return "".join(lines)
