"""The shim library of a simulated node, ``libnvidia-ml.so.1``, compiled on demand with the system's C compiler.

Each node has its own copy beside its socket: the library finds the node by its location, and two nodes can be open in
one process. It exports the functions of the node's driver branch. Builds are cached in the state directory, or in
``ALIQUOT_CACHE_DIR``. They are compiled once and linked once for each set of functions. Functions of ``symbols.txt``
without an implementation get a stub that logs the call in the node.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation import atomic_file
from aliquot.foundation.paths import unsafe_reason
from aliquot.sim.nvml_functions import functions, missing

NAME = "libnvidia-ml.so.1"
SOURCES = (
    "connection.c",
    "handle_table.c",
    "container_access.c",
    "device.c",
    "topology.c",
    "memory.c",
    "monitor.c",
    "events.c",
    "mig.c",
    "gpm.c",
    "vgpu.c",
    "vgpu_instance.c",
)
_INPUTS = ("shim.h", "symbols.txt", *SOURCES)
_COMPILE = ("-std=gnu11", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread", "-r", "-nostdlib")
_LINK = ("-shared", "-pthread", f"-Wl,-soname,{NAME}")
DRIVER = "lib.driver"
"""The file in a node's directory with its simulated driver branch."""
_COMPILE_S = 300.0
_SHIM_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim")


def provide(root: str, name: str) -> str:
    """Return the path of a node's library, which is built if it is missing, older than the sources, or of another
    driver. Raises AliquotError without a C compiler.
    """
    directory = os.path.join(root, name)
    path = os.path.join(directory, NAME)
    key_path = os.path.join(directory, "lib.key")
    branch = _driver_branch(directory)
    key = f"{branch} {_stamp()}"
    try:
        with open(key_path, "rb") as file:
            if file.read() == key.encode() and os.path.exists(path):
                return path
    except FileNotFoundError:
        pass  # not built yet
    cache = os.environ.get("ALIQUOT_CACHE_DIR") or os.path.join(root, "lib")
    with open(_build(cache, missing(branch)), "rb") as built:
        atomic_file.replace(path, built.read(), mode=0o755, durable=False)
    atomic_file.replace(key_path, key.encode(), durable=False)
    return path


def _driver_branch(directory: str) -> int:
    """Return a node's simulated driver branch; the newest if the node's server does not provide it."""
    try:
        with open(os.path.join(directory, DRIVER), encoding="utf-8") as file:
            return int(file.read())
    except FileNotFoundError:
        return max(functions().values())


def _stamp() -> str:
    """Return sizes and modification times of the sources, and the compiler: cheap to compare on every command."""
    parts = [os.environ.get("CC", "")]
    for name in _INPUTS:
        facts = os.stat(os.path.join(_SHIM_FOLDER, name))
        parts.append(f"{name}:{facts.st_size}:{facts.st_mtime_ns}")
    return " ".join(parts)


def compiler() -> str:
    """Return the C compiler: ``$CC``, cc, gcc or clang. Raises AliquotError if there is none."""
    import shutil

    for word in (os.environ.get("CC"), "cc", "gcc", "clang"):
        found = shutil.which(word) if word else None
        if found:
            return found
    raise AliquotError(
        "no C compiler: the NVML library of a simulated node cannot be built",
        details=("looked for $CC, cc, gcc and clang",),
        next_step="install gcc, or work on the node without it: ALIQUOT_BACKEND=direct aliquot show --sim NAME",
    )


def implemented() -> frozenset[str]:
    """Return the implemented functions; the others return NOT_SUPPORTED and are logged in the node."""
    import re

    found: set[str] = set()
    for name in SOURCES:
        with open(os.path.join(_SHIM_FOLDER, name), encoding="utf-8") as file:
            text = file.read()
        found.update(re.findall(r"^API [^(\n]*?\b(nvml\w+)\(", text, re.MULTILINE))
        found.update(re.findall(r"^[A-Z_]+\((?:[a-z ]+, )?(nvml\w+)", text, re.MULTILINE))
    return frozenset(found)


def stubs() -> str:
    """Return C source for every exported function that is not implemented."""
    lines = ['#include "shim.h"', ""]
    for name in sorted(functions().keys() - implemented()):
        lines.append(f'API int {name}(void) {{ return unimplemented("{name}"); }}')
    return "\n".join(lines) + "\n"


def _build(cache: str, without: Collection[str]) -> str:
    """Return the library that exports all but some functions. It is cached under a name derived from its inputs."""
    import hashlib

    program = compiler()
    inputs = hashlib.sha256(" ".join((program, *_COMPILE, *_LINK)).encode())
    for name in _INPUTS:
        with open(os.path.join(_SHIM_FOLDER, name), "rb") as source:
            inputs.update(source.read())
    object_file = os.path.join(cache, f"{inputs.hexdigest()[:24]}.o")
    inputs.update(" ".join(sorted(without)).encode())
    library = os.path.join(cache, f"{inputs.hexdigest()[:24]}.so")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    if reason := unsafe_reason(cache):
        raise BlockedError(
            f"no library is loaded from {cache}: {reason}",
            code="UNSAFE_FOLDER",
            next_step="set ALIQUOT_CACHE_DIR to a directory that only you can write in",
        )
    if not os.path.exists(library):
        if not os.path.exists(object_file):
            sources = [os.path.join(_SHIM_FOLDER, s) for s in SOURCES]
            _make(object_file, [program, *_COMPILE, "-I", _SHIM_FOLDER, *sources], "stubs.c", stubs())
        local = f"{{ local: {'; '.join(sorted(without))}; }};\n" if without else "{ };\n"
        _make(library, [program, *_LINK, object_file, "-ldl"], "exports.map", local)
    return library


def _make(target: str, command: list[str], name: str, text: str) -> None:
    """Run the compiler with one more file with the given text, and move its output to ``target``."""
    import tempfile

    from aliquot.foundation import bounded_process

    with tempfile.TemporaryDirectory(dir=os.path.dirname(target)) as work:
        extra, output = os.path.join(work, name), os.path.join(work, "made")
        with open(extra, "w", encoding="utf-8") as file:
            file.write(text)
        more = f"-Wl,--version-script={extra}" if name.endswith(".map") else extra
        try:
            code, _, message = bounded_process.run([*command, more, "-o", output], _COMPILE_S)
        except OSError as failure:  # includes TimeoutError
            code, message = 1, str(failure)
        if code:
            lines = tuple(message.strip().splitlines()[-6:])
            raise AliquotError(f"{command[0]} cannot build the NVML library of a simulated node", details=lines)
        atomic_file.rename(output, target)
