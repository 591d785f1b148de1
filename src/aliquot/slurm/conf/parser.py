"""Parser of the four files that concern GPUs, which follows Slurm's own parser.

A line holds one statement. Most statements are one ``Key=value``; those that begin with a key of ``_LONG`` have more
pairs up to the end of the line. Anything else is an error for Slurm, and a diagnostic here. ``Include FILE`` must be at
the very beginning of a line.
"""

from __future__ import annotations

import os
import re

from aliquot.foundation.callbacks import ReadFile
from aliquot.slurm.conf.lines import SPACE, LogicalLine, logical_lines
from aliquot.slurm.conf.statements import Conf, ConfDiagnostic, ConfLocation, ConfPair, ConfSource, ConfStatement

_PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*([-*+/]?)=\s*(?:"([^"]*)"|([^\s]+))(?=\s|$)', re.ASCII)
_LONG = {
    "slurm.conf": {"nodename", "partitionname", "nodeset", "downnodes", "frontendname"},
    "gres.conf": {"name", "nodename"},
    "helpers.conf": {"nodename", "feature"},
    "cgroup.conf": set[str](),
}
_KNOWN = {
    "gres.conf": {
        *("autodetect", "count", "cpus", "cores", "file", "files", "flags", "link", "links", "multiplefiles"),
        *("name", "nodename", "type"),
    },
    "helpers.conf": {
        *("allowuserboot", "boottime", "exectime", "feature", "flags", "helper", "mutuallyexclusive", "nodename"),
    },
}
"""Keys of files that have only few. slurm.conf has 300, which differ between releases: only Slurm checks those."""
DEPTH = 16
"""Maximum depth of includes; a deeper one is reported as a cycle."""


def parse(path: str, read: ReadFile, kind: str = "") -> Conf:
    """Parse a configuration and its includes.

    Errors are collected as diagnostics; only reading ``path`` itself raises OSError. ``kind`` is the file's usual name
    (``gres.conf``), if ``path`` does not end with it.
    """
    reader = _Reader(kind or os.path.basename(path), os.path.dirname(path), read)
    reader.take(path, read(path), ())
    return Conf(path, tuple(reader.statements), tuple(reader.sources), tuple(reader.diagnostics))


class _Reader:
    """The state of parsing. An Include may use the cluster name of an earlier line (``%c``)."""

    def __init__(self, kind: str, folder: str, read: ReadFile) -> None:
        self.kind = kind
        self.folder = folder
        self.read = read
        self.statements: list[ConfStatement] = []
        self.sources: list[ConfSource] = []
        self.diagnostics: list[ConfDiagnostic] = []

    def take(self, path: str, text: str, above: tuple[str, ...]) -> None:
        if all(s.path != path for s in self.sources):
            self.sources.append(ConfSource(path, text))
        for line in logical_lines(text):
            location = ConfLocation(path, line.first)
            words = re.findall(r"\S+", line.text, re.ASCII)
            if line.text[:7].lower() == "include" and line.text[7:8] in SPACE:
                self._include(words, location, (*above, path))
            else:
                self._statement(line, location)

    def _include(self, words: list[str], location: ConfLocation, above: tuple[str, ...]) -> None:
        name = words[1] if len(words) > 1 else ""
        if "%c" in name:
            cluster = next((s.head.value for s in self.statements if s.head.called("ClusterName")), "")
            name = name.replace("%c", cluster.lower())
        path = os.path.join(self.folder, name)
        if len(words) != 2:
            self._report(location, "Include takes one file")
        elif "*" in name:
            self._report(location, f"Include {name}: Slurm does not support patterns here, and skips it")
        elif path in above or len(above) > DEPTH:
            self._report(location, f"Include {name}: it includes itself")
        else:
            try:
                text = self.read(path)
            except OSError as error:
                self._report(location, f"Include {name}: {error.strerror or error}")
            else:
                self.take(path, text, above)

    def _statement(self, line: LogicalLine, location: ConfLocation) -> None:
        pairs: list[ConfPair] = []
        rest = 0
        while match := _PAIR.match(line.text, rest):
            if pairs and not pairs[0].called(*_LONG.get(self.kind, ())):
                break
            pairs.append(_pair(match, line, location))
            rest = match.end()
        left = line.text[rest:].strip(SPACE)
        if left:
            self._report(location, f"Slurm cannot read {_short(left)}" + _why(left, pairs))
        known = _KNOWN.get(self.kind)
        for pair in pairs if known else ():
            if known and pair.key.lower() not in known:
                self._report(location, f"{self.kind} has no key {pair.key}")
        if pairs:
            start = line.at[len(line.text) - len(line.text.lstrip(SPACE))]
            end = line.at[len(line.text.rstrip(SPACE)) - 1] + 1
            self.statements.append(ConfStatement(tuple(pairs), location, line.last, start, end))

    def _report(self, location: ConfLocation, sentence: str) -> None:
        self.diagnostics.append(ConfDiagnostic(location, sentence))


def _pair(match: re.Match[str], line: LogicalLine, location: ConfLocation) -> ConfPair:
    quoted = match[3] is not None
    start, end = match.span(3 if quoted else 4)
    start, end = (start - 1, end + 1) if quoted else (start, end)
    value = match[3] if quoted else match[4]
    return ConfPair(match[1], value, location, line.at[start], line.at[end - 1] + 1, match[2])


def _why(left: str, pairs: list[ConfPair]) -> str:
    if re.match(r"[A-Za-z0-9_.]+\s*=\s*$", left):
        return ": the value after = is missing"
    if left.count('"') % 2:
        return ": a quote is not closed"
    if pairs and _PAIR.match(left):
        return f": a line that begins with {pairs[0].key} must have no other key"
    if " =" in left or "= " in left:
        return ""
    return ": it is not a Key=value pair"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
