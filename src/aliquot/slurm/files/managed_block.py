"""The lines of a gres.conf that are ours, in a file that others may write, too: one block per Slurm node. Pure.

    # aliquot: begin n1 5f2a91c07b3e
    NodeName=n1 Name=gpu ...
    # aliquot: end n1

The digest is that of the lines between: one that does not fit tells of a hand edit.
"""

from __future__ import annotations

import hashlib

import msgspec

BEGIN = "# aliquot: begin {node} {digest}"
END = "# aliquot: end {node}"


class ManagedBlock(msgspec.Struct, frozen=True):
    """A node's block. ``first`` and ``last`` are the numbers of the marks' lines, from 1; without an end mark ``last``
    is the last line before the next beginning, or of the file.
    """

    node: str
    first: int
    last: int
    digest: str
    lines: tuple[str, ...]

    @property
    def edited(self) -> bool:
        """Somebody else has changed it since."""
        return digest(self.lines) != self.digest


def digest(body: tuple[str, ...]) -> str:
    """Of the lines between the marks; spaces at their ends do not count."""
    return hashlib.sha256("\n".join(line.rstrip() for line in body).encode(errors="surrogateescape")).hexdigest()[:12]


def render_block(node: str, body: tuple[str, ...]) -> str:
    """A block as text, each line ended."""
    marks = BEGIN.format(node=node, digest=digest(body)), END.format(node=node)
    return "\n".join([marks[0], *body, marks[1]]) + "\n"


def blocks(text: str) -> tuple[ManagedBlock, ...]:
    """The blocks of a file, in order."""
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
    """The block of one node; the first, where somebody copied it."""
    return next((each for each in blocks(text) if each.node == node), None)


def replace_block(text: str, node: str, body: tuple[str, ...]) -> str:
    """A file with a node's block made so: in its place, or at the end. Everything else stays byte for byte. Without
    lines the block goes.
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
