"""The NVML session of this process.

It is opened once per command. Our own session is a client that prevents a GPU reset like any other, so it can be closed
around a reset (``gate``). NVML's handles become invalid with the session, so no caller keeps one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import AliquotError
from aliquot.foundation.driver_calls import DriverCall
from aliquot.hardware.nvml import binding
from aliquot.hardware.nvml.session_gate import SessionGate


class NvmlSession:
    """An open NVML session. Raises NoDriverError if no driver answers, or if it is older than the oldest supported
    version.

    ``library`` is a path to load instead of the system's library (the shim of a simulated node, or a driver container's
    copy).
    """

    def __init__(self, library: str | None = None) -> None:
        self._binding: binding.NvmlBinding | None = binding.acquire(library)
        self.nv = self._binding.nv
        self.calls = 0
        self.driver = ""
        self.profile_info_version = 3
        self.epoch = 0
        """Increases whenever handles become invalid: a cache that remembers it knows when it is stale."""
        self.before_close: list[Callable[[], None]] = []
        """Called before the session ends or becomes quiet, so that watchers release the GPUs."""
        self.gate = SessionGate(self._end, self._start)
        self._quiet = 0
        self._lock = Lock()
        self._open = False
        try:
            self._start()
            self.driver = str(self.call("reading the driver version", self.nv.nvmlSystemGetDriverVersion))
            self.nvml = str(self.call("reading the NVML version", self.nv.nvmlSystemGetNVMLVersion))
            if (too_old := codes.driver_too_old(self.driver)) is not None:
                raise too_old
        except BaseException:
            with suppress(AliquotError):
                self.close()
            raise

    def _start(self) -> None:
        self.call("opening NVML", self.nv.nvmlInit)
        self._open = True
        self.epoch += 1

    def close(self) -> None:
        """End the session. A second call does nothing."""
        ended = False
        try:
            self._end()
            ended = True
        finally:
            self._release(clean=ended)

    def _release(self, *, clean: bool) -> None:
        """Release the binding for later sessions. ``clean`` says whether NVML was shut down."""
        released, self._binding = self._binding, None
        if released is not None:
            binding.release(released, clean=clean)

    def _end(self) -> None:
        if self._open:
            for callback in self.before_close:
                callback()
            self._open = False
            self.call("closing NVML", self.nv.nvmlShutdown)

    @property
    def is_quiet(self) -> bool:
        """True while watching the GPUs is forbidden."""
        return self._quiet > 0

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Stop all watchers of the GPUs in this context: an event set is a client that a change of MIG mode may wait
        for.
        """
        with self._lock:
            self._quiet += 1
        try:
            for callback in self.before_close:
                callback()
            yield
        finally:
            with self._lock:
                self._quiet -= 1

    def call(self, attempt: str, function: Callable[..., Any], *arguments: Any, gpu: str = "") -> Any:
        """Call an NVML function and raise its return code as an error of this package if it fails."""
        self.calls += 1
        try:
            with DriverCall(attempt, gpu):
                return function(*arguments)
        except self.nv.NVMLError as failure:
            if failure.value == codes.FUNCTION_NOT_FOUND and self.driver:
                raise codes.missing(function.__name__, self.driver, attempt) from failure
            raise codes.error(failure.value, attempt, gpu=gpu) from failure

    def try_call(self, function: Callable[..., Any], *arguments: Any, **accepted: Any) -> tuple[int, Any]:
        """Call an NVML function whose refusal is a valid answer. Return the code, and the result (None unless it is
        SUCCESS).
        """
        self.calls += 1
        try:
            with DriverCall(function.__name__):
                return codes.SUCCESS, function(*arguments, **accepted)
        except self.nv.NVMLError as failure:
            return int(failure.value), None

    def raw(self, function: str, *arguments: Any) -> int:
        """Call an NVML function that nvidia-ml-py does not bind. Return its code."""
        self.calls += 1
        try:
            with DriverCall(function):
                return int(getattr(self.nv.nvmlLib, function)(*arguments))
        except AttributeError:
            return codes.FUNCTION_NOT_FOUND
