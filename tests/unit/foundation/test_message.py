"""Messages: a sentence and its next step, as a value and as one line."""

import pytest

from aliquot.errors import BlockedError, Message


@pytest.mark.parametrize("message", [Message("no room"), Message("no room", "aliquot show"), Message("", "reboot")])
def test_a_line_is_read_back_into_the_same_message(message: Message) -> None:
    assert Message.parse(str(message)) == message


def test_the_line_is_that_of_conditions_and_errors() -> None:
    assert str(Message("no room", "aliquot show")) == "no room | next: aliquot show"
    assert str(Message("no room")) == "no room"
    assert BlockedError("no room", next_step="aliquot show").one_line == "no room | next: aliquot show"
    assert BlockedError("no room").one_line == "no room"


def test_a_line_is_cut_at_its_end_whatever_that_is() -> None:
    message = Message("no room", "aliquot show")
    assert message.cut(28) is message
    assert str(message.cut(27)) == "no room | next: aliquot sh…"
    assert message.cut(27) == Message("no room", "aliquot sh…")
    assert message.cut(10) == Message("no room |…")
    assert Message("no room at all").cut(8) == Message("no room…")
