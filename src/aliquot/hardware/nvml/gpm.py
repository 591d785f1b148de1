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
from aliquot.hardware.nvml.session import NvmlSession

MIN_INTERVAL_S = 0.15
"""Two samples closer than this say nothing: the hardware's counters are refreshed every 100 ms."""

_SM_UTIL = 2
GpmTarget = tuple[str, int | None]
"""PCI address, and GPU instance id or None for the whole GPU."""


class Gpm:
    """The samples of one session. They end with it, and with anything that may leave others in their place. Threads
    may use it at once: a sample must not be freed while it is compared.
    """

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._previous: dict[GpmTarget, tuple[float, Any, float | None]] = {}
        """When, the sample, and the share that was told then."""
        self._supported: dict[str, bool] = {}
        self._lock = Lock()
        session.before_close.append(self.forget)

    def forget(self) -> None:
        """Frees every sample."""
        with self._lock:
            while self._previous:
                self._free(self._previous.popitem()[1][1])
            self._supported.clear()

    def keep(self, targets: set[GpmTarget]) -> None:
        """Frees the samples of all others: what comes at their place is not compared with what was there."""
        with self._lock:
            for gone in set(self._previous) - targets:
                self._free(self._previous.pop(gone)[1])

    def supported(self, handle: Any, pci: str) -> bool:
        """Whether a GPU has it. Asked once per session."""
        if pci not in self._supported:
            code, support = self._session.try_call(self._session.nv.nvmlGpmQueryDeviceSupport, handle)
            self._supported[pci] = code == codes.SUCCESS and bool(support.isSupportedDevice)
        return self._supported[pci]

    def has_sample(self, target: GpmTarget) -> bool:
        """Whether there is a former sample of it."""
        return target in self._previous

    def busy_share(self, handle: Any, target: GpmTarget) -> float | None:
        """The share of its multiprocessors that were busy since the sample before this one, 0 to 1; None at the first,
        and where the driver refuses. Right after another it is that one's. ``handle`` is the whole GPU's.
        """
        with self._lock:
            return self._measure(handle, target)

    def _measure(self, handle: Any, target: GpmTarget) -> float | None:
        nv, previous = self._session.nv, self._previous.get(target)
        if previous is not None and time.monotonic() - previous[0] < MIN_INTERVAL_S:
            return previous[2]
        code, sample = self._session.try_call(nv.nvmlGpmSampleAlloc)
        if code != codes.SUCCESS:
            return None
        if target[1] is None:
            code, _ = self._session.try_call(nv.nvmlGpmSampleGet, handle, sample)
        else:
            code, _ = self._session.try_call(nv.nvmlGpmMigSampleGet, handle, target[1], sample)
        if code != codes.SUCCESS:
            self._free(sample)
            if target[1] is None and code in (codes.NO_PERMISSION, codes.NOT_SUPPORTED):
                self._supported[target[0]] = False  # it has it, and not for us: others may tell
            return None
        share = self._between(previous[1], sample) if previous is not None else None
        self._previous[target] = (time.monotonic(), sample, share)
        if previous is not None:
            self._free(previous[1])
        return share

    def _between(self, one: Any, two: Any) -> float | None:
        nv = self._session.nv
        request = nv.c_nvmlGpmMetricsGet_t()
        request.version = nv.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics, request.sample1, request.sample2 = 1, one, two
        request.metrics[0].metricId = _SM_UTIL
        code, _ = self._session.try_call(nv.nvmlGpmMetricsGet, request)
        metric = request.metrics[0]
        if (
            code != codes.SUCCESS or metric.nvmlReturn != codes.SUCCESS or not 0 <= metric.value <= 100.5
        ):  # NaN is neither
            return None
        return round(min(1.0, float(metric.value) / 100), 4)

    def _free(self, sample: Any) -> None:
        self._session.try_call(self._session.nv.nvmlGpmSampleFree, sample)
