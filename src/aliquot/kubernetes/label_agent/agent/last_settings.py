"""Last valid texts of settings, which stay in use while a newer text is invalid, also for the next agent."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from aliquot.core.config.settings import Layer
from aliquot.core.config.settings_text import read
from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import agent_log as log
from aliquot.foundation.state_store import StateFile

FILE = "last-settings.json"


class Texts(msgspec.Struct, frozen=True):
    """The content of the file."""

    texts: dict[str, str] = {}
    """Texts by the name of their ConfigMap."""


class LastSettings:
    """Stores the texts in a file in ``directory``, or only in memory if that is empty."""

    def __init__(self, directory: str = "") -> None:
        path = os.path.join(directory, FILE)
        self._file = StateFile(path, "last-settings", Texts, Texts()) if directory else None
        self._texts: dict[str, str] = {}
        self._layers: dict[str, Layer] = {}
        for name, text in self._stored().items():
            self._texts[name] = text
            with suppress(AliquotError):  # valid for another version: keep it for that one
                self._layers[name] = read(text, f"ConfigMap {name}")

    def read(self, name: str, text: str) -> tuple[Layer | None, AliquotError | None]:
        """Read the text of a ConfigMap. If it is invalid, return the last valid settings and the error."""
        if self._texts.get(name) == text and name in self._layers:
            return self._layers[name], None
        try:
            layer = read(text, f"ConfigMap {name}")
        except AliquotError as error:
            return self._layers.get(name), error
        self._layers[name], self._texts[name] = layer, text
        self._save()
        return layer, None

    def forget(self, name: str) -> None:
        """Forget the settings of a ConfigMap that no longer has any."""
        self._layers.pop(name, None)
        if self._texts.pop(name, None) is not None:
            self._save()

    def _stored(self) -> dict[str, str]:
        try:
            return self._file.load().texts if self._file is not None else {}
        except AliquotError as error:
            log.warning("%s", error.brief)
            return {}

    def _save(self) -> None:
        """Save the texts. A failure is only logged: it costs the next agent its fallback."""
        if self._file is None:
            return
        try:
            self._file.save(Texts(dict(self._texts)))
        except AliquotError as error:
            log.warning("%s: the next agent cannot fall back to these settings", error.brief)
