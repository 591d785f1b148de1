"""Values from newer versions: they stay readable in stored and sent fields."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest

from aliquot.core.model.plan import Blocker, Policy
from aliquot.core.model.stored import Stored


class Row(msgspec.Struct, frozen=True):
    word: Stored[Literal["known"]] = "known"
    maybe: Stored[Literal["known"]] | None = None


@pytest.mark.parametrize("word", ["known", "of a newer version"])
def test_any_text_is_read_and_written_as_it_stands(word: str) -> None:
    text = msgspec.json.encode({"word": word, "maybe": None})
    assert msgspec.json.encode(msgspec.json.decode(text, type=Row)) == text


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected `str`, got `int`"):
        msgspec.json.decode(b'{"word": 1}', type=Row)


def test_a_rule_of_a_newer_version_is_read_and_a_policy_is_not() -> None:
    read = msgspec.json.decode(b'{"rule": "NEW", "message": ""}', type=Blocker)
    assert msgspec.to_builtins(read)["rule"] == "NEW"
    with pytest.raises(msgspec.ValidationError, match="invalid policy 'ask': use refuse, wait or force"):
        msgspec.json.decode(b'{"held": "ask"}', type=Policy)
