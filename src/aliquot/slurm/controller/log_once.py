"""Logging without repetitions, and actions on Slurm whose failures are independent."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report
from aliquot.slurm.client.errors import SlurmError


class LogOnce:
    """A log that repeats a message about a subject only after another message."""

    def __init__(self, log: Report) -> None:
        self.log = log
        self._reported: dict[str, str] = {}

    def report(self, subject: str, sentence: str) -> None:
        """Log a message about a subject, unless it was the last one. "" means that there is nothing to log."""
        if sentence and self._reported.get(subject) != sentence:
            self.log(f"{subject}: {sentence}")
        self._reported[subject] = sentence

    def keep(self, current: Collection[str]) -> None:
        """Forget the subjects that no longer exist, because jobs come and go forever."""
        self._reported = {a: s for a, s in self._reported.items() if a in current}

    def attempt(self, what: str, call: Callable[..., None], *words: object) -> bool:
        """Perform an action on Slurm and report whether it succeeded. A failure is logged; the next round retries."""
        try:
            call(*words)
        except SlurmError as error:
            self.report(what, in_a_line(error))
            return False
        self.report(what, "")
        return True


def in_a_line(error: AliquotError) -> str:
    """Format an error as one line for the log."""
    step = f"next: {error.next_step}" if error.next_step else ""
    return "; ".join(filter(None, (error.brief, *error.details[:3], step)))
