"""GPM: the share of busy multiprocessors between two samples, also per GPU instance. Hopper and later support it.

A sample is a buffer of the library. The last one of each target is kept, so that a caller gets the share of the whole
time since its last read without waiting.

Sources: NVML's reference. It requires more than 100 ms between two samples, and takes samples of a MIG GPU by GPU
instance id on the GPU's own handle. According to bug reports about R535, GPM calls with a MIG device's handle make
later questions about its memory fail, so no such handle is used here.
"""

from __future__ import annotations

import time
from threading import Lock
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.hardware.nvml.session import NvmlSession

MIN_INTERVAL_S = 0.15
"""Two samples closer than this contain no information: the hardware's counters are refreshed every 100 ms."""

_SM_UTIL = 2
GpmTarget = tuple[str, int | None]
"""The PCI address, and the GPU instance id or None for the whole GPU."""


class Gpm:
    """The samples of one session. They end with the session, and with any change that may put another instance in place
    of a target. The lock prevents that a sample is freed while another thread compares it.
    """

    def __init__(self, session: NvmlSession) -> None:
        self._session = session
        self._previous: dict[GpmTarget, tuple[float, Any, float | None]] = {}
        """By target: the time of the sample, the sample, and the share that was returned then."""
        self._supported: dict[str, bool] = {}
        self._lock = Lock()
        session.before_close.append(self.forget)

    def forget(self) -> None:
        """Free all samples."""
        with self._lock:
            while self._previous:
                self._free(self._previous.popitem()[1][1])
            self._supported.clear()

    def keep(self, targets: set[GpmTarget]) -> None:
        """Free the samples of all other targets, so that a later instance with the same id is not
        compared with them.
        """
        with self._lock:
            for gone in set(self._previous) - targets:
                self._free(self._previous.pop(gone)[1])

    def supported(self, handle: Any, pci: str) -> bool:
        """Return whether a GPU supports GPM. Queried once per session."""
        if pci not in self._supported:
            code, support = self._session.try_call(self._session.nv.nvmlGpmQueryDeviceSupport, handle)
            self._supported[pci] = code == codes.SUCCESS and bool(support.isSupportedDevice)
        return self._supported[pci]

    def has_sample(self, target: GpmTarget) -> bool:
        """Return whether a target has a previous sample."""
        return target in self._previous

    def busy_share(self, handle: Any, target: GpmTarget) -> float | None:
        """Return the share of busy multiprocessors since the previous sample, 0 to 1. None at the first sample, or if
        the driver refuses. A call right after another returns the earlier result. ``handle`` is the whole GPU's.
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
                self._supported[target[0]] = False  # supported, but not permitted for us: other sources may report it
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
        ):  # NaN fails both comparisons
            return None
        return round(min(1.0, float(metric.value) / 100), 4)

    def _free(self, sample: Any) -> None:
        self._session.try_call(self._session.nv.nvmlGpmSampleFree, sample)
