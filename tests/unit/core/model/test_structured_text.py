"""Texts that keep their values: only words for those who print, compare or store them."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.encoding import encode, to_builtins
from aliquot.core.model.placement import Placement
from aliquot.core.model.structured_text import GpuName, GpuOption, GpuPart, StructuredText, parts_of

PLACE = Placement(4, 4)


def test_the_words_of_each_part() -> None:
    text = StructuredText(GpuName("0000:07:00.0", ": "), "blocks ", ("3g.20gb", PLACE), ", moves to ", PLACE)
    assert text == "GPU 0000:07:00.0: blocks 3g.20gb at 4:4, moves to 4:4"
    command = StructuredText("aliquot plan ", GpuOption("0000:07:00.0"), " or aliquot show ", GpuPart("0000:07:00.0"))
    assert command == "aliquot plan --gpu 0000:07:00.0 or aliquot show 0000:07:00.0"


def test_the_parts_of_a_text_inside_another_are_its_parts() -> None:
    inner = StructuredText("at ", PLACE)
    assert parts_of(StructuredText("it is ", inner, "!")) == ("it is ", "at ", PLACE, "!")
    assert parts_of(StructuredText.joined(", ", [inner, PLACE])) == ("at ", PLACE, ", ", PLACE)
    assert parts_of("at 4:4") == ("at 4:4",)


class Shown(msgspec.Struct, frozen=True):
    """A value that shows a text."""

    text: str


def test_an_encoded_text_is_its_words() -> None:
    text = StructuredText("at ", PLACE)
    assert encode({"a": [text]}) == b'{"a":["at 4:4"]}'
    plain = to_builtins(Shown(text))
    assert plain == {"text": "at 4:4"}
    assert type(plain["text"]) is str


@pytest.mark.parametrize("encoder", [encode, to_builtins])
def test_another_type_is_refused(encoder: object) -> None:
    with pytest.raises(TypeError, match="cannot encode a complex"):
        encoder([1j])  # type: ignore[operator]
