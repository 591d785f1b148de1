"""The NVML binding of each library that this process loads; the only module that imports ``pynvml`` (nvidia-ml-py).

``pynvml`` keeps its library in a global variable. This process has a private copy of the module for each library.
Therefore two simulated nodes, each with its own library, can be open together, and other users of pynvml in this
process are not affected. Sessions on the same library share the copy, so a process that opens a session every few
seconds creates only one.
"""

from __future__ import annotations

import os
import sys
from threading import Lock
from types import CellType, FunctionType, ModuleType
from typing import Any

from aliquot.core.model import nvml_return_codes as codes

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
_SYSTEM = ""


class NvmlBinding:
    """A copy of ``pynvml`` (``nv``) and the library behind it."""

    def __init__(self, inode: int = 0, content: tuple[int, int] = (0, 0)) -> None:
        self.nv = private_copy()
        self.inode = inode
        """The inode of the file that the library was loaded from, or of a later file with the same content."""
        self.content = content
        self.sessions = 0
        self.clean = True
        """Whether every session on it was shut down without an error."""


_pristine: dict[str, Any] = {}
"""The content of ``pynvml`` after its import, before any session: the template of all further copies."""
_bindings: dict[str, list[NvmlBinding]] = {}
"""Bindings by the real path of their library, in the order of loading; the host's own library is ``_SYSTEM``. No
binding is ever removed and no library unloaded, because a thread may be inside a call.
"""
_ACQUIRING = Lock()
_IMPORTING = Lock()


def acquire(library: str | None) -> NvmlBinding:
    """Return the binding for ``library`` (a path; None is the host's own library). The session ends with ``release``.
    Raises NoDriverError.
    """
    with _ACQUIRING:
        path = library or system_library()
        found = _system_binding() if path is None else _path_binding(path)
        found.sessions += 1
        return found


def release(binding: NvmlBinding, *, clean: bool) -> None:
    """Return a binding that ``acquire`` returned. ``clean`` says whether NVML was shut down."""
    with _ACQUIRING:
        binding.sessions -= 1
        binding.clean &= clean


def library_below(driver_root: str) -> str:
    """Return the NVML library of a driver below another root (a driver container). Raises NoDriverError."""
    for folder in _IN_DRIVER_ROOT:
        path = os.path.join(driver_root, folder, LIBRARY)
        if os.path.exists(path):
            return path
    raise codes.error(codes.LIBRARY_NOT_FOUND, f"looking for {LIBRARY} below {driver_root}")


def system_library() -> str | None:
    """Return the path of the host's own library if the plain name would resolve to another that is already loaded (a
    simulated node's); None if the plain name is right. Raises NoDriverError.
    """
    if not _bindings.keys() - {_SYSTEM}:
        return None
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep):
        path = os.path.join(folder, LIBRARY)
        if folder and os.path.exists(path) and os.path.realpath(path) not in _bindings:
            return path
    return library_below("/")


def _system_binding() -> NvmlBinding:
    """Return the binding that resolves its library by the plain name when its first session begins."""
    bindings = _bindings.setdefault(_SYSTEM, [])
    if not bindings:
        bindings.append(NvmlBinding())
    return bindings[0]


def _path_binding(path: str) -> NvmlBinding:
    """Return the binding for the file that is at ``path`` now.

    A simulated node that was restarted, or a driver that was installed again, has a new file with the same content
    there. The library that is already loaded serves it, unless it is in use or was not shut down.
    """
    import ctypes

    real = os.path.realpath(path)
    bindings = _bindings.get(real, [])
    try:
        inode = os.stat(path).st_ino
        for each in bindings:
            if each.inode == inode:
                return each
        content = _content(path)
        for each in bindings:
            if each.content == content and each.clean and not each.sessions:
                each.inode = inode
                return each
        loaded = ctypes.CDLL(_spelling(path, len(bindings)))
    except OSError as failure:
        error = codes.error(codes.LIBRARY_NOT_FOUND, f"loading {path}")
        error.details += (str(failure),)
        raise error from failure
    binding = NvmlBinding(inode, content)
    binding.nv.nvmlLib = loaded
    _bindings.setdefault(real, []).append(binding)
    return binding


def _content(path: str) -> tuple[int, int]:
    """Return the length and checksum of a file."""
    import zlib

    with open(path, "rb") as file:
        data = file.read()
    return len(data), zlib.crc32(data)


def _spelling(path: str, number: int) -> str:
    """Return a spelling of the path that differs for each ``number``: the loader remembers names, and returns the
    library that it loaded under a known name.
    """
    folder, name = os.path.split(os.path.abspath(path))
    return folder + "/." * number + "/" + name


def private_copy() -> Any:
    """Return a private copy of the ``pynvml`` module, without a library.

    The copies share the module's classes, because creating them takes 10 ms and 1.3 MB that ctypes never frees. They do
    not share the globals, which the functions read and write.

    ``pynvml`` imports ``ctypes.util`` for a Windows path, and with it shutil, subprocess, tempfile, bz2 and lzma: 41 ms
    against 29 ms with this stand-in (bare Python: 12 ms). The stand-in loads the real module if it is used.

    A lock allows one thread at a time: the dashboard opens nodes in several threads, and an import fails if another
    thread removes its module.
    """
    with _IMPORTING:
        if _pristine:
            return _copy_pristine()
        first = _import_pynvml()
        _pristine.update((k, dict(v) if k.endswith("_cache") else v) for k, v in vars(first).items())
        return first


def _copy_pristine() -> Any:
    copy = ModuleType("pynvml")
    names = vars(copy)
    for name, value in _pristine.items():
        names[name] = _with_globals(value, names) if isinstance(value, FunctionType) else value
        if name.endswith("_cache"):
            names[name] = dict(value)
    return copy


def _with_globals(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """Return the function with other globals, and likewise the functions of the module that it wraps."""
    if function.__module__ != "pynvml":
        return function
    inner = (cell.cell_contents for cell in function.__closure__ or ())
    closure = tuple(CellType(_with_globals(v, names) if isinstance(v, FunctionType) else v) for v in inner)
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, closure or None)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _import_pynvml() -> Any:
    stand_in = None
    if "ctypes.util" not in sys.modules:
        stand_in = type(sys)("ctypes.util")

        def find_library(name: str) -> str | None:
            sys.modules.pop("ctypes.util", None)
            from ctypes.util import find_library as real

            return real(name)

        stand_in.__dict__["find_library"] = find_library
        sys.modules["ctypes.util"] = stand_in
    previous = sys.modules.pop("pynvml", None)
    try:
        import pynvml

        return pynvml
    finally:
        sys.modules.pop("pynvml", None)
        if previous is not None:
            sys.modules["pynvml"] = previous
        if stand_in is not None and sys.modules.get("ctypes.util") is stand_in:
            del sys.modules["ctypes.util"]
