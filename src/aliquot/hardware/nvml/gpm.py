"""GPM: how busy multiprocessors were between two looks, per GPU instance too. Hopper and later have it.

A sample is a buffer of the library's. The last one of each piece is kept, so that a watcher has the share of the whole
time between two looks and nobody waits. Sources: NVML's reference (two samples lie more than 100 ms apart; of a MIG GPU
the samples are taken by GPU instance id on the GPU's own handle); bug reports of R535, where GPM calls with a MIG
device's handle made later questions about its memory fail, so that no such handle is used here.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.hardware.nvml.session import Session

APART_S = 0.15
"""Two samples closer than this say nothing: the hardware's counters are refreshed every 100 ms."""

_SM_UTIL = 2
Piece = tuple[str, int | None]
"""PCI address, and GPU instance id or None for the whole GPU."""


class Gpm:
    """The samples of one session. They end with it, and with anything that may leave others in their place. Threads
    may use it at once: a sample must not be freed while it is compared.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._former: dict[Piece, tuple[float, Any, float | None]] = {}
        """When, the sample, and the share that was told then."""
        self._able: dict[str, bool] = {}
        self._turn = Lock()
        session.before_close.append(self.forget)

    def forget(self) -> None:
        """Frees every sample."""
        with self._turn:
            while self._former:
                self._free(self._former.popitem()[1][1])
            self._able.clear()

    def keep(self, pieces: set[Piece]) -> None:
        """Frees the samples of all others: what comes at their place is not compared with what was there."""
        with self._turn:
            for gone in set(self._former) - pieces:
                self._free(self._former.pop(gone)[1])

    def able(self, handle: Any, pci: str) -> bool:
        """Whether a GPU has it. Asked once per session."""
        if pci not in self._able:
            code, told = self._session.ask(self._session.nv.nvmlGpmQueryDeviceSupport, handle)
            self._able[pci] = code == codes.SUCCESS and bool(told.isSupportedDevice)
        return self._able[pci]

    def known(self, piece: Piece) -> bool:
        """Whether there is a former sample of it."""
        return piece in self._former

    def busy(self, handle: Any, piece: Piece) -> float | None:
        """The share of its multiprocessors that were busy since the sample before this one, 0 to 1; None at the first,
        and where the driver refuses. Right after another it is that one's. ``handle`` is the whole GPU's.
        """
        with self._turn:
            return self._busy(handle, piece)

    def _busy(self, handle: Any, piece: Piece) -> float | None:
        nv, former = self._session.nv, self._former.get(piece)
        if former is not None and time.monotonic() - former[0] < APART_S:
            return former[2]
        code, sample = self._session.ask(nv.nvmlGpmSampleAlloc)
        if code != codes.SUCCESS:
            return None
        if piece[1] is None:
            code, _ = self._session.ask(nv.nvmlGpmSampleGet, handle, sample)
        else:
            code, _ = self._session.ask(nv.nvmlGpmMigSampleGet, handle, piece[1], sample)
        if code != codes.SUCCESS:
            self._free(sample)
            if piece[1] is None and code in (codes.NO_PERMISSION, codes.NOT_SUPPORTED):
                self._able[piece[0]] = False  # it has it, and not for us: others may tell
            return None
        share = self._between(former[1], sample) if former is not None else None
        self._former[piece] = (time.monotonic(), sample, share)
        if former is not None:
            self._free(former[1])
        return share

    def _between(self, one: Any, two: Any) -> float | None:
        nv = self._session.nv
        wanted = nv.c_nvmlGpmMetricsGet_t()
        wanted.version = nv.NVML_GPM_METRICS_GET_VERSION
        wanted.numMetrics, wanted.sample1, wanted.sample2 = 1, one, two
        wanted.metrics[0].metricId = _SM_UTIL
        code, _ = self._session.ask(nv.nvmlGpmMetricsGet, wanted)
        told = wanted.metrics[0]
        if code != codes.SUCCESS or told.nvmlReturn != codes.SUCCESS or not 0 <= told.value <= 100.5:  # NaN is neither
            return None
        return round(min(1.0, float(told.value) / 100), 4)

    def _free(self, sample: Any) -> None:
        self._session.ask(self._session.nv.nvmlGpmSampleFree, sample)
