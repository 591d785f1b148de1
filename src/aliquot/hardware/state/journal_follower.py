"""A journal that is followed: what is new in it, and the newest changes that it tells of."""

from __future__ import annotations

import os

import msgspec

from aliquot.core.engine.history import Past, newest, pasts
from aliquot.core.engine.ports import Record
from aliquot.errors import AliquotError
from aliquot.hardware.state.journal_reader import JOURNAL, Mark, added, former_path, read

MOST_RUNS = 12
MOST_ACTS = 32


class News(msgspec.Struct, frozen=True):
    """Records that were not told before. ``anew``: those that were count no longer, for the journal was cut down."""

    records: list[Record]
    anew: bool


class Followed:
    """``directory`` is where the node's journal lies."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, JOURNAL)
        self._stamp: tuple[tuple[int, int, int], ...] = ()
        self._mark = Mark()

    def news(self) -> News | None:
        """What came since the last call; None where the files are as they were. Raises OSError, StorageError."""
        older = _stamp(former_path(self._path))
        stamp = *older, *_stamp(self._path)
        if not stamp:
            raise FileNotFoundError(self._path)
        if stamp == self._stamp:
            return None
        if older:  # an older release writes it; the next change takes it over
            news, self._mark = News(read(self._path), anew=True), Mark()
        else:
            records, self._mark, anew = added(self._path, self._mark)
            news = News(records, anew)
        self._stamp = stamp
        return news


def _stamp(path: str) -> tuple[tuple[int, int, int], ...]:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return ()
    return ((facts.st_ino, facts.st_size, facts.st_mtime_ns),)


class Newest:
    """The newest changes of a node, whoever made them, for those who cannot read its journal."""

    def __init__(self, directory: str) -> None:
        self._journal = Followed(directory)
        self._open: list[Record] = []
        self._pasts: tuple[Past, ...] = ()

    def pasts(self) -> tuple[Past, ...]:
        """Those that have ended, a dozen at most. A journal that cannot be read tells what it told last."""
        try:
            news = self._journal.news()
        except (OSError, AliquotError):
            return self._pasts
        if news is not None:
            records = news.records if news.anew else self._open + news.records
            former = () if news.anew else self._pasts
            self._pasts = (*newest(pasts(records), MOST_RUNS, MOST_ACTS), *former)[:MOST_RUNS]
            last = [r for r in records if r.run == records[-1].run]
            self._open = [] if any(r.kind == "end" for r in last) else last
        return self._pasts
