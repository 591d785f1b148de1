"""Profile names: ``[<C>c.]<G>g.<N>gb[+attr[,attr] | -attr[,attr]]``, the grammar that mig-parted and NVML share."""

from __future__ import annotations

import re

import msgspec

_NAME = re.compile(r"(?:(\d+)c\.)?(\d+)g\.(\d+)gb(?:([+-])(.+))?")
_ATTRIBUTE = re.compile(r"(?![0-9.])[A-Za-z0-9.]*[A-Za-z0-9]")


class ProfileName(msgspec.Struct, frozen=True):
    """A parsed profile name: ``compute`` compute slices of a GPU instance with ``slices`` slices and ``memory_gb``.

    Numbers compare numerically and attributes without order, so ``01g.5gb`` equals ``1g.5gb``. The memory number is
    only part of the name: the driver rounds it, it changes between drivers, and it is never compared with memory.
    """

    compute: int
    slices: int
    memory_gb: int
    sign: str = ""
    attributes: frozenset[str] = frozenset()

    @property
    def instance(self) -> ProfileName:
        """The name of the GPU instance profile: the same without the ``Cc.`` prefix."""
        return msgspec.structs.replace(self, compute=self.slices)

    def __str__(self) -> str:
        prefix = "" if self.compute == self.slices else f"{self.compute}c."
        suffix = self.sign + ",".join(sorted(self.attributes))
        return f"{prefix}{self.slices}g.{self.memory_gb}gb{suffix}"

    @classmethod
    def parse(cls, text: str) -> ProfileName:
        """Parse a profile name. Raises ValueError with a sentence that states the expected grammar."""
        match = _NAME.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not a MIG profile name: use a form like 3g.20gb, 1g.5gb+me or 1c.3g.20gb")
        compute, count, memory, sign, tail = match.groups()
        words = tail.split(",") if tail else []
        if len(set(words)) != len(words) or not all(_ATTRIBUTE.fullmatch(word) for word in words):
            raise ValueError(f"{text!r} has malformed attributes {sign}{tail}")
        return cls(int(compute or count), int(count), int(memory), sign or "", frozenset(words))
