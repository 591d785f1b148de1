"""This machine's side of the engine's ports, under one name."""

from __future__ import annotations

from aliquot.foundation.lock import FileLock
from aliquot.foundation.threads import SystemClock, ThreadWorkers
from aliquot.hardware.host import LocalHost
from aliquot.hardware.state.journal import FileJournal
from aliquot.node.hooks import CommandHooks, NoHooks

__all__ = ["CommandHooks", "FileJournal", "FileLock", "LocalHost", "NoHooks", "SystemClock", "ThreadWorkers"]
