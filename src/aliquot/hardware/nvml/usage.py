"""What the pieces of this node's GPUs are used for, through NVML. Reads only, and much less than a look at the GPUs.

Memory is asked of MIG devices: the compute instances of one GPU instance share its memory, and the first one tells it.
MIG has no rates of utilisation (NOT_SUPPORTED); there and on whole GPUs GPM tells, where the GPU has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.profile import ProfileName
from aliquot.core.model.usage import GPM, NVML, Usage
from aliquot.errors import GpuLostError
from aliquot.hardware.nvml.gpm import APART_S, Gpm
from aliquot.hardware.nvml.reader import Card, Reader

_GONE = (codes.NOT_FOUND, codes.INVALID_ARGUMENT)
_SILENT = (codes.NOT_SUPPORTED, codes.FUNCTION_NOT_FOUND, codes.NO_PERMISSION)


class UsageReader:
    """One session's view. A GPU that fell off the bus, and an instance that goes while it is read, are left out."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._session = reader.session
        self.gpm = Gpm(reader.session)

    def read(self, over_s: float) -> tuple[Usage, ...]:
        """Every piece. ``over_s``: wait so long where GPM has no former sample of one; 0 waits for nothing."""
        cards = self._reader.cards()
        if over_s > 0 and self._sample(cards):
            time.sleep(max(over_s, APART_S))
        # Memory of all pieces first, and GPM after it (see there).
        found = [(card, each) for card, mig in cards for each in self._pieces(card, divided=mig.enabled)]
        self.gpm.keep({(each.gpu, each.instance) for _, each in found})
        return tuple(self._with_share(card, each) for card, each in found)

    def _sample(self, cards: tuple[tuple[Card, Any], ...]) -> bool:
        """A first sample of everything that GPM can measure; whether there was anything new."""
        new = False
        for card, mig in cards:
            if not self.gpm.able(card.handle, card.pci):
                continue
            ids: list[int | None] = [None]
            if mig.enabled:
                ids = []
                with suppress(GpuLostError):
                    ids = [instance for instance, _ in self._devices(card)]
            for instance in ids:
                if not self.gpm.known((card.pci, instance)):
                    self.gpm.busy(card.handle, (card.pci, instance))
                    new = True
        return new

    def _pieces(self, card: Card, *, divided: bool) -> list[Usage]:
        found: list[Usage] = []
        with suppress(GpuLostError):
            if not divided:
                used, total = self._memory(card, card.handle)
                found.append(Usage(card.pci, None, "", used, total))
                return found
            for instance, device in self._devices(card):
                code, name = self._session.ask(self._session.nv.nvmlDeviceGetName, device)
                if code in _GONE:
                    continue
                used, total = self._memory(card, device)
                found.append(Usage(card.pci, instance, _profile(str(name or "")), used, total))
        return found

    def _devices(self, card: Card) -> Iterator[tuple[int, Any]]:
        """Each GPU instance's id with the handle of its first MIG device."""
        session, nv, seen = self._session, self._session.nv, set[int]()
        attempt = f"reading the MIG devices of {card.pci}"
        for index in range(session.call(attempt, nv.nvmlDeviceGetMaxMigDeviceCount, card.handle, gpu=card.pci)):
            code, device = session.ask(nv.nvmlDeviceGetMigDeviceHandleByIndex, card.handle, index)
            if code in _GONE:
                continue  # positions may be empty, and there may be holes
            if code != codes.SUCCESS:
                raise codes.error(code, attempt, gpu=card.pci)
            code, instance = session.ask(nv.nvmlDeviceGetGpuInstanceId, device)
            if code == codes.SUCCESS and instance not in seen:
                seen.add(instance)
                yield int(instance), device

    def _memory(self, card: Card, handle: Any) -> tuple[int | None, int | None]:
        """MiB used and in all. The second version does not count as used what the driver keeps for itself."""
        nv = self._session.nv
        code, told = self._session.ask(nv.nvmlDeviceGetMemoryInfo, handle, version=nv.nvmlMemory_v2)
        if code in (codes.FUNCTION_NOT_FOUND, codes.ARGUMENT_VERSION_MISMATCH):
            code, told = self._session.ask(nv.nvmlDeviceGetMemoryInfo, handle)
        if code in (*_SILENT, *_GONE):
            return None, None  # a system on chip has no memory of its own; a guest may not ask
        if code != codes.SUCCESS:
            raise codes.error(code, f"reading the memory in use on {card.pci}", gpu=card.pci)
        return int(told.used) >> 20, int(told.total) >> 20

    def _with_share(self, card: Card, piece: Usage) -> Usage:
        from msgspec.structs import replace

        if self.gpm.able(card.handle, card.pci):
            share = self.gpm.busy(card.handle, (card.pci, piece.instance))
            if share is not None:
                return replace(piece, compute=share, source=GPM)
        if piece.instance is not None or self.gpm.able(card.handle, card.pci):
            return piece
        code, rates = self._session.ask(self._session.nv.nvmlDeviceGetUtilizationRates, card.handle)
        return piece if code != codes.SUCCESS else replace(piece, compute=min(100, rates.gpu) / 100, source=NVML)


def _profile(name: str) -> str:
    """The GPU instance's profile, from the name of a MIG device: ``... MIG 1c.3g.20gb`` lies in a 3g.20gb."""
    printed = name.rpartition(" MIG ")[2]
    try:
        return str(ProfileName.parse(printed).instance)
    except ValueError:
        return printed
