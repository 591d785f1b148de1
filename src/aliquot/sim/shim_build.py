"""The shim library of a simulated node, ``libnvidia-ml.so.1``, compiled on demand with the system's C compiler.

Each node has a copy of its own beside its socket: the library finds the node by where it lies, and two nodes can be
open in one process. The build is kept in the state directory, or where ``ALIQUOT_CACHE_DIR`` says. Functions of
``symbols.txt`` that no source implements get a stub that says so to the node.
"""

from __future__ import annotations

import os

from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation import atomic_file
from aliquot.foundation.paths import foreign

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
)
_INPUTS = ("shim.h", "symbols.txt", *SOURCES)
_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", f"-Wl,-soname,{NAME}")
_COMPILE_S = 300.0
_HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim")


def provide(root: str, name: str) -> str:
    """The path of a node's library, made if it is missing or older than the sources. Raises AliquotError without a
    C compiler.
    """
    directory = os.path.join(root, name)
    path = os.path.join(directory, NAME)
    key_path = os.path.join(directory, "lib.key")
    key = _stamp()
    try:
        with open(key_path, "rb") as file:
            if file.read() == key.encode() and os.path.exists(path):
                return path
    except FileNotFoundError:
        pass  # not made yet
    with open(_build(os.environ.get("ALIQUOT_CACHE_DIR") or os.path.join(root, "lib")), "rb") as built:
        atomic_file.replace(path, built.read(), mode=0o755, durable=False)
    atomic_file.replace(key_path, key.encode(), durable=False)
    return path


def _stamp() -> str:
    """Sources and compiler as the file system knows them: cheap to compare on every command."""
    parts = [os.environ.get("CC", "")]
    for name in _INPUTS:
        facts = os.stat(os.path.join(_HERE, name))
        parts.append(f"{name}:{facts.st_size}:{facts.st_mtime_ns}")
    return " ".join(parts)


def compiler() -> str:
    """The C compiler: ``$CC``, cc, gcc or clang. Raises AliquotError if there is none."""
    import shutil

    for word in (os.environ.get("CC"), "cc", "gcc", "clang"):
        found = shutil.which(word) if word else None
        if found:
            return found
    raise AliquotError(
        "no C compiler: the NVML library of a simulated node cannot be built",
        details=("looked for $CC, cc, gcc and clang",),
        next_step="install gcc, or work on the node without it: ALIQUOT_BACKEND=direct aliquot show --node NAME",
    )


def symbols() -> tuple[str, ...]:
    """The functions that the library exports."""
    with open(os.path.join(_HERE, "symbols.txt"), encoding="utf-8") as file:
        return tuple(line.strip() for line in file if line.strip() and not line.startswith("#"))


def implemented() -> frozenset[str]:
    """The functions that are answered; the others say NOT_SUPPORTED and are logged in the node."""
    import re

    found: set[str] = set()
    for name in SOURCES:
        with open(os.path.join(_HERE, name), encoding="utf-8") as file:
            text = file.read()
        found.update(re.findall(r"^API [^(\n]*?\b(nvml\w+)\(", text, re.MULTILINE))
        found.update(re.findall(r"^[A-Z_]+\((?:[a-z ]+, )?(nvml\w+)", text, re.MULTILINE))
    return frozenset(found)


def stubs() -> str:
    """C source of every exported function that is not implemented."""
    lines = ['#include "shim.h"', ""]
    for name in sorted(set(symbols()) - implemented()):
        lines.append(f'API int {name}(void) {{ return unimplemented("{name}"); }}')
    return "\n".join(lines) + "\n"


def _build(cache: str) -> str:
    """Compile into the cache, under a name that follows from sources and compiler."""
    import hashlib
    import tempfile

    from aliquot.foundation import bounded_process

    program = compiler()
    digest = hashlib.sha256(" ".join((program, *_FLAGS)).encode())
    for name in _INPUTS:
        with open(os.path.join(_HERE, name), "rb") as source:
            digest.update(source.read())
    target = os.path.join(cache, f"{digest.hexdigest()[:24]}.so")
    os.makedirs(cache, mode=0o700, exist_ok=True)
    if reason := foreign(cache):
        raise BlockedError(
            f"no library is loaded from {cache}: {reason}",
            next_step="set ALIQUOT_CACHE_DIR to a directory that only you can write in",
        )
    if os.path.exists(target):
        return target
    with tempfile.TemporaryDirectory(dir=cache) as work:
        extra = os.path.join(work, "stubs.c")
        with open(extra, "w", encoding="utf-8") as file:
            file.write(stubs())
        output = os.path.join(work, NAME)
        inputs = [extra, *(os.path.join(_HERE, s) for s in SOURCES)]
        command = [program, *_FLAGS, "-I", _HERE, "-o", output, *inputs, "-ldl"]
        try:
            code, _, said = bounded_process.run(command, _COMPILE_S)
        except OSError as failure:  # a TimeoutError too
            code, said = 1, str(failure)
        if code:
            lines = tuple(said.strip().splitlines()[-6:])
            raise AliquotError(f"{program} cannot build the NVML library of a simulated node", details=lines)
        atomic_file.put(output, target)
    return target
