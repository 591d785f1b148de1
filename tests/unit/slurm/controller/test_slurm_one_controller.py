"""Exclusive history: one controller works on it, another one waits for its end."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from aliquot.errors import LockedError
from aliquot.slurm.controller import main


def test_the_second_waits_says_so_once_and_takes_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "POLL_S", 0.01)
    path, messages, stop = str(tmp_path / "history"), list[str](), threading.Event()
    taken = []
    with contextlib.ExitStack() as mine:
        with main.hold_lock(path):
            with pytest.raises(LockedError), main.hold_lock(path):
                pass
            waiting = threading.Thread(
                target=lambda: taken.append(main._acquire_lock(mine, path, messages.append, stop))
            )
            waiting.start()
            waiting.join(0.1)
            assert taken == []
        waiting.join(5)
        assert taken == [True]
    assert len(messages) == 1
    assert "is the Slurm controller here: this controller waits until that one ends" in messages[0]


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    path, stop = str(tmp_path / "history"), threading.Event()
    stop.set()
    with contextlib.ExitStack() as mine, main.hold_lock(path):
        assert not main._acquire_lock(mine, path, lambda _: None, stop)
