"""State file of the agent, for state that must outlive it even if the API server is unavailable."""

from __future__ import annotations

import os

from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.state_store import StateFile
from aliquot.kubernetes.label_agent.agent.observation import Durable

FILE = "agent-state.json"
PREVIOUS_FILE = "agent.json"


def _merged(ours: Durable, older: Durable) -> Durable:
    """Merge the record of an older release into this one. Entries that it lacks stay, as it did not see them."""
    return Durable(older.stopped or ours.stopped, older.reboot or ours.reboot)


class AgentStateFile:
    """State file in ``directory``. It is replaced as a whole, and is on disk before ``write`` returns.

    ``error`` is why it cannot be read. It then counts as empty and is not overwritten.
    """

    def __init__(self, directory: str) -> None:
        path = os.path.join(directory, FILE)
        self._file = StateFile(path, "agent-state", Durable, Durable(), legacy_name=PREVIOUS_FILE, merge=_merged)
        self._unsaved = False
        self.value = Durable()
        self.error: AliquotError | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the file again after an error."""
        try:
            self.value, self.error = self._file.load(), None
        except AliquotError as read_error:
            self.error = read_error

    def write(self, value: Durable) -> None:
        """Write the record. Raises StorageError; then nothing that depends on the record may be done."""
        if self.error is not None:
            raise self.error
        if value == self.value and not self._unsaved:
            return
        self._file.save(value)
        self.value, self._unsaved = value, False

    def forget(self, value: Durable) -> None:
        """Write a record without actions that are done.

        A failure is only logged: after a restart, the actions are done once more, which is harmless.
        """
        try:
            self.write(value)
        except AliquotError as error:
            log.warning("%s: the record of a finished action could not be removed", error.brief)
            self.value, self._unsaved = value, True
