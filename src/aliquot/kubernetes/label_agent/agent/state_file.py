"""The agent's own record on disk: what must outlive it and cannot lie in the API server, which may be away."""

from __future__ import annotations

import os

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.state_store import StateFile
from aliquot.kubernetes.label_agent.agent.observation import Durable

FILE = "agent-state.json"
PREVIOUS_FILE = "agent.json"


def _merged(ours: Durable, older: Durable) -> Durable:
    """What an older release has on record; what it has not, it did not see: that is still to be done."""
    return Durable(older.stopped or ours.stopped, older.reboot or ours.reboot)


class AgentStateFile:
    """One file below ``directory``, replaced whole and on disk before ``write`` returns. ``error`` says why it cannot
    be read; then it counts as empty, and nothing is written over it.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, FILE)
        self._file = StateFile(path, "agent-state", Durable, Durable(), legacy_name=PREVIOUS_FILE, merge=_merged)
        self._unsaved = False
        self.value = Durable()
        self.error: AliquotError | None = None
        self.refresh()

    def refresh(self) -> None:
        """Reads what could not be read before."""
        try:
            self.value, self.error = self._file.load(), None
        except AliquotError as read_error:
            self.error = read_error

    def write(self, value: Durable) -> None:
        """Raises StorageError; then nothing that depends on the record may be done."""
        if self.error is not None:
            raise self.error
        if value == self.value and not self._unsaved:
            return
        self._file.save(value)
        self.value, self._unsaved = value, False

    def forget(self, value: Durable) -> None:
        """Writes a record of less than before, because it is done. If that fails it will be done once more after a
        restart, which is harmless, and no reason to stop here.
        """
        try:
            self.write(value)
        except AliquotError as error:
            log.warning("%s: what is done stays on record", error.brief)
            self.value, self._unsaved = value, True
