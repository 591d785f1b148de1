"""This machine's side of the engine's ports, under one name."""

from __future__ import annotations

from aliquot.backends.hooks import CommandHooks, NoHooks
from aliquot.backends.host import LocalHost
from aliquot.backends.journal import FileJournal
from aliquot.backends.lock import FileLock
from aliquot.backends.workers import SystemClock, ThreadWorkers

__all__ = ["CommandHooks", "FileJournal", "FileLock", "LocalHost", "NoHooks", "SystemClock", "ThreadWorkers"]
