"""Effect of names that others have chosen on the terminal that displays them."""

from __future__ import annotations

import pytest

from aliquot.cli.framework import color as colour
from aliquot.cli.framework import streams

BAD = "job 7 (\x1b[2J\x1b]0;all is well\x07\r\x9b1A\x08 of eve)\tend\n"


def test_names_are_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    streams.note(BAD)
    assert capsys.readouterr().err == "job 7 (?[2J?]0;all is well???1A? of eve)\tend\n\n"


def test_our_own_colours_stay_and_so_do_letters_of_all_tongues() -> None:
    text = colour.paint("größer 四 ✓", colour.RED, on=True)
    assert streams.plain(text) == text


def test_a_result_that_no_terminal_shows_is_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    streams.result(BAD, end="")
    assert capsys.readouterr().out == BAD
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    streams.result(BAD, end="")
    assert "\x1b" not in capsys.readouterr().out
