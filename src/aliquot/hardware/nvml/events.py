"""XIDs as NVML reports them to an event set.

The set keeps the GPUs open like any client. Therefore it is freed before our session is suspended and around a change
of MIG mode, and created again at the next poll. Events in between are lost, as they are while no agent runs.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.core.model.ids import pci_address
from aliquot.core.model.xids import Xid
from aliquot.hardware.nvml.session import NvmlSession

NOT_ATTRIBUTED = 0xFFFFFFFF
MAX_EVENTS = 256
"""Limit of events per poll; the rest waits for the next poll."""


class NvmlEvents:
    """The XIDs that NVML reports to one event set. ``unwatched`` are the PCI addresses of GPUs that report none."""

    def __init__(self, session: NvmlSession) -> None:
        self.unwatched: tuple[str, ...] = ()
        self._session = session
        self._set: Any = None
        self._gpus: dict[int | None, str] = {}
        self._lock = threading.Lock()
        session.before_close.append(self.free)

    def take(self) -> list[Xid]:
        """Return what was reported since the last call. A set that fails, for example because a GPU fell off the bus,
        is created again at the next call without that GPU.
        """
        nv, found = self._session.nv, list[Xid]()
        with self._session.gate.use(), self._lock:
            if self._session.is_quiet:
                return found
            if self._set is None:
                self._create_set()
            for _ in range(MAX_EVENTS):
                code, data = self._session.try_call(nv.nvmlEventSetWait_v2, self._set, 0)
                if code == codes.TIMEOUT:
                    break
                if code != codes.SUCCESS:
                    self._free()
                    break
                if data.eventType == nv.nvmlEventTypeXidCriticalError:
                    found.append(self._xid(data))
        return found

    def free(self) -> None:
        """Free the event set, which releases the GPUs."""
        with self._lock:
            self._free()

    def _free(self) -> None:
        if self._set is not None:
            freed, self._set = self._set, None
            self._session.try_call(self._session.nv.nvmlEventSetFree, freed)

    def _create_set(self) -> None:
        nv, try_call = self._session.nv, self._session.try_call
        self._set = self._session.call("creating an event set", nv.nvmlEventSetCreate)
        self._gpus, unwatched = {}, []
        for index in range(self._session.call("counting the GPUs", nv.nvmlDeviceGetCount)):
            code, handle = try_call(nv.nvmlDeviceGetHandleByIndex, index)
            info = None if code else try_call(nv.nvmlDeviceGetPciInfo, handle)[1]
            if info is None:
                continue  # fell off the bus: the inventory reports it
            pci = self._gpus[_value(handle)] = _pci(info)
            supported = try_call(nv.nvmlDeviceGetSupportedEventTypes, handle)[1] or 0
            wanted = supported & nv.nvmlEventTypeXidCriticalError
            if not wanted or try_call(nv.nvmlDeviceRegisterEvents, handle, wanted, self._set)[0]:
                unwatched.append(pci)
        self.unwatched = tuple(unwatched)

    def _xid(self, data: Any) -> Xid:
        gpu = self._gpus.get(_value(data.device))
        if gpu is None:
            _, info = self._session.try_call(self._session.nv.nvmlDeviceGetPciInfo, data.device)
            gpu = "" if info is None else _pci(info)
        instance = None if data.gpuInstanceId == NOT_ATTRIBUTED else int(data.gpuInstanceId)
        compute_instance = None if data.computeInstanceId == NOT_ATTRIBUTED else int(data.computeInstanceId)
        return Xid(gpu, int(data.eventData), instance, None if instance is None else compute_instance)


def _value(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value


def _pci(info: Any) -> str:
    return pci_address(info.busId.decode() if isinstance(info.busId, bytes) else info.busId)
