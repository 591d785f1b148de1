"""The one NVML session of this process, and the only module that imports ``pynvml`` (nvidia-ml-py).

It is opened once per command; our own session is a client that refuses a GPU reset like any other, so that it can be
closed around one (``gate``). NVML's handles die with the session: nobody outside keeps one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from types import CellType, FunctionType, ModuleType
from typing import Any

from aliquot.core.model import nvml_return_codes as codes
from aliquot.hardware.nvml.session_gate import Gate

LIBRARY = "libnvidia-ml.so.1"

_IN_DRIVER_ROOT = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/lib",
)


_IMPORTING = Lock()
_pristine: dict[str, Any] = {}
"""What ``pynvml`` holds after its import, before any session: the pattern of all further copies."""


def _import_binding() -> Any:
    """A private copy of the ``pynvml`` module.

    Private, because the module keeps its library in a global: with a copy per session, two simulated nodes (each has a
    library of its own) can be open in one process, and a program that uses pynvml beside us is not disturbed.

    The copies share the module's classes, whose making takes 10 ms and 1.3 MB that ctypes never gives back. What
    they do not share is what the functions read and write: their globals.

    ``pynvml`` imports ``ctypes.util`` for a Windows path and with it shutil, subprocess, tempfile, bz2 and lzma: 41 ms
    against 29 ms with this stand-in (bare Python: 12 ms). The stand-in loads the real module if it is ever asked.

    One thread at a time: the page opens nodes in several, and an import whose module another one takes away fails.
    """
    with _IMPORTING:
        if _pristine:
            return _copied()
        first = _imported()
        _pristine.update((k, dict(v) if k.endswith("_cache") else v) for k, v in vars(first).items())
        return first


def _copied() -> Any:
    copy = ModuleType("pynvml")
    names = vars(copy)
    for name, value in _pristine.items():
        names[name] = _with_globals(value, names) if isinstance(value, FunctionType) else value
        if name.endswith("_cache"):
            names[name] = dict(value)
    return copy


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """The function over other globals; so are the functions of the module that it wraps."""
    if function.__module__ != "pynvml":
        return function
    inner = (cell.cell_contents for cell in function.__closure__ or ())
    closure = tuple(CellType(_with_globals(v, names) if isinstance(v, FunctionType) else v) for v in inner)
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure or None)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _imported() -> Any:
    stand_in = None
    if "ctypes.util" not in sys.modules:
        stand_in = type(sys)("ctypes.util")

        def find_library(name: str) -> str | None:
            sys.modules.pop("ctypes.util", None)
            from ctypes.util import find_library as real

            return real(name)

        stand_in.__dict__["find_library"] = find_library
        sys.modules["ctypes.util"] = stand_in
    others = sys.modules.pop("pynvml", None)
    try:
        import pynvml

        return pynvml
    finally:
        sys.modules.pop("pynvml", None)
        if others is not None:
            sys.modules["pynvml"] = others
        if stand_in is not None and sys.modules.get("ctypes.util") is stand_in:
            del sys.modules["ctypes.util"]


def library_below(driver_root: str) -> str:
    """The NVML library of a driver that lives below another root (a driver container). Raises NoDriverError."""
    import os

    for folder in _IN_DRIVER_ROOT:
        path = os.path.join(driver_root, folder, LIBRARY)
        if os.path.exists(path):
            return path
    raise codes.error(codes.LIBRARY_NOT_FOUND, f"looking for {LIBRARY} below {driver_root}")


_loaded: dict[str, list[int]] = {}
"""Libraries that this process loaded by path, with the inodes that were there. The loader answers a plain
``libnvidia-ml.so.1`` with one of them.
"""


def system_library() -> str | None:
    """The path of this machine's own library where the plain name would find another that is loaded already (a
    simulated node's); None where the plain name is right. Raises NoDriverError.
    """
    if not _loaded:
        return None
    import os

    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        path = os.path.join(folder, LIBRARY)
        if folder and os.path.exists(path) and os.path.realpath(path) not in _loaded:
            return path
    return library_below("/")


def _spelling(path: str) -> str:
    """A spelling of the path that the loader takes for the file that is there now: it remembers names, and a simulated
    node that was stopped and started again has a new library under the old one.
    """
    import os

    inode = os.stat(path).st_ino
    inodes = _loaded.setdefault(os.path.realpath(path), [])
    if inode not in inodes:
        inodes.append(inode)
    folder, name = os.path.split(os.path.abspath(path))
    return folder + "/." * inodes.index(inode) + "/" + name


class Session:
    """NVML, open. ``library`` is a path to load instead of the system's (the shim of a simulated node, or a driver
    container's copy). Raises NoDriverError where no driver answers, or one older than the floor.
    """

    def __init__(self, library: str | None = None) -> None:
        self.nv = _import_binding()
        self.calls = 0
        self.profile_info_version = 3
        self.epoch = 0
        """Grows whenever handles become invalid: a cache that remembers it knows when it is stale."""
        self.before_close: list[Callable[[], None]] = []
        """Called before the session ends or is to be quiet: what watches the GPUs lets go of them."""
        self.gate = Gate(self.close, self._start)
        self._quiet = 0
        self._turn = Lock()
        self._open = False
        library = library or system_library()
        if library is not None:
            self._load(library)
        self._start()
        self.driver = str(self.call("reading the driver version", self.nv.nvmlSystemGetDriverVersion))
        self.nvml = str(self.call("reading the NVML version", self.nv.nvmlSystemGetNVMLVersion))
        too_old = codes.driver_too_old(self.driver)
        if too_old is not None:
            self.close()
            raise too_old

    def _load(self, path: str) -> None:
        import ctypes

        try:
            self.nv.nvmlLib = ctypes.CDLL(_spelling(path))
        except OSError as failure:
            error = codes.error(codes.LIBRARY_NOT_FOUND, f"loading {path}")
            error.details += (str(failure),)
            raise error from failure

    def _start(self) -> None:
        self.call("opening NVML", self.nv.nvmlInit)
        self._open = True
        self.epoch += 1

    def close(self) -> None:
        """End the session. A second call does nothing."""
        if self._open:
            for let_go in self.before_close:
                let_go()
            self._open = False
            self.call("closing NVML", self.nv.nvmlShutdown)

    @property
    def quiet_now(self) -> bool:
        """Whether nobody may watch the GPUs now."""
        return self._quiet > 0

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Nobody watches the GPUs for the duration: an event set is a client that a change of MIG mode may wait for."""
        with self._turn:
            self._quiet += 1
        try:
            for let_go in self.before_close:
                let_go()
            yield
        finally:
            with self._turn:
                self._quiet -= 1

    def call(self, attempt: str, function: Callable[..., Any], *arguments: Any, gpu: str = "") -> Any:
        """One NVML call; its return code as an error of ours if it fails."""
        self.calls += 1
        try:
            return function(*arguments)
        except self.nv.NVMLError as failure:
            raise codes.error(failure.value, attempt, gpu=gpu) from failure

    def ask(self, function: Callable[..., Any], *arguments: Any, **accepted: Any) -> tuple[int, Any]:
        """One NVML call whose refusal is an answer: the return code, and the result (None unless it is SUCCESS)."""
        self.calls += 1
        try:
            return codes.SUCCESS, function(*arguments, **accepted)
        except self.nv.NVMLError as failure:
            return int(failure.value), None

    def raw(self, function: str, *arguments: Any) -> int:
        """One NVML call that nvidia-ml-py does not bind: its return code."""
        self.calls += 1
        try:
            return int(getattr(self.nv.nvmlLib, function)(*arguments))
        except AttributeError:
            return codes.FUNCTION_NOT_FOUND
