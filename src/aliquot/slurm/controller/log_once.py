"""What the controller says, once; and acts on Slurm that may fail each by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report
from aliquot.slurm.client.errors import SlurmError


class LogOnce:
    """``log`` takes a sentence. What was said about something is said again only after another was true of it."""

    def __init__(self, log: Report) -> None:
        self.log = log
        self._reported: dict[str, str] = {}

    def report(self, subject: str, sentence: str) -> None:
        """A sentence about something; "" for nothing to be said of it."""
        if sentence and self._reported.get(subject) != sentence:
            self.log(f"{subject}: {sentence}")
        self._reported[subject] = sentence

    def forget(self, prefix: str, current: Collection[str]) -> None:
        """What was said about things that are no more, of all whose names begin so: jobs come and go for ever."""
        self._reported = {a: s for a, s in self._reported.items() if a in current or not a.startswith(prefix)}

    def attempt(self, what: str, call: Callable[..., None], *words: object) -> bool:
        """Does an act on Slurm. One that fails is told, and the next round tries again."""
        try:
            call(*words)
        except SlurmError as error:
            self.report(what, in_a_line(error))
            return False
        self.report(what, "")
        return True


def in_a_line(error: AliquotError) -> str:
    """An error for a log."""
    step = f"next: {error.next_step}" if error.next_step else ""
    return "; ".join(filter(None, (error.brief, *error.details[:3], step)))
