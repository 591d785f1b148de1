"""What the controller says, once; and acts on Slurm that may fail each by itself."""

from __future__ import annotations

from collections.abc import Callable, Collection

from aliquot.errors import AliquotError
from aliquot.slurm.client.errors import SlurmError


class Telling:
    """``say`` takes a sentence. What was said about something is said again only after another was true of it."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self._said: dict[str, str] = {}

    def tell(self, about: str, sentence: str) -> None:
        """A sentence about something; "" for nothing to be said of it."""
        if sentence and self._said.get(about) != sentence:
            self.say(f"{about}: {sentence}")
        self._said[about] = sentence

    def forget(self, beginning: str, still: Collection[str]) -> None:
        """What was said about things that are no more, of all whose names begin so: jobs come and go for ever."""
        self._said = {a: s for a, s in self._said.items() if a in still or not a.startswith(beginning)}

    def tried(self, what: str, act: Callable[..., None], *words: object) -> bool:
        """Does an act on Slurm. One that fails is told, and the next round tries again."""
        try:
            act(*words)
        except SlurmError as error:
            self.tell(what, in_a_line(error))
            return False
        self.tell(what, "")
        return True


def in_a_line(error: AliquotError) -> str:
    """An error for a log."""
    step = f"next: {error.next_step}" if error.next_step else ""
    return "; ".join(filter(None, (error.brief, *error.details[:3], step)))
