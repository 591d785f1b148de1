"""Words of a closed vocabulary in stored or sent data: written as known words, read as any text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

if TYPE_CHECKING:
    _Words = TypeVar("_Words", bound=str)
    Stored = Annotated[_Words, "decoded as any text"]
else:

    class Stored:
        """The type of a field that holds one of ``Words``. Code can only write and compare those words.

        For decoding, the field is plain text, because a newer version may have written a word that this one lacks.
        """

        def __class_getitem__(cls, words: object) -> type[str]:
            return str
