"""Words of a closed vocabulary in what is stored or sent: written as known, read as they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, TypeVar

if TYPE_CHECKING:
    _Words = TypeVar("_Words", bound=str)
    Stored = Annotated[_Words, "decoded as any text"]
else:

    class Stored:
        """Mark a field that holds a word of ``Stored[Words]``. Code can only write and compare words of that type. To
        decoding the field is a plain text, because a newer version may have written a word that this one lacks.
        """

        def __class_getitem__(cls, words: object) -> type[str]:
            return str
