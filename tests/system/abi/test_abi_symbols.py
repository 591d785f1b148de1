"""Symbols that the shim exports and that clients use. None is missing, and unimplemented ones return errors."""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import re
from pathlib import Path

import pytest

from aliquot.errors import AliquotError, BlockedError
from aliquot.sim import lifecycle as control
from aliquot.sim import shim_build as library
from aliquot.sim.client import SimClient
from aliquot.sim.nvml_functions import functions, missing


def source_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    paths = [Path(spec.origin)]
    if spec.submodule_search_locations:
        paths = [p for p in Path(spec.origin).parent.rglob("*.py") if "test" not in p.name]
    return "\n".join(p.read_text() for p in paths)


def bound() -> dict[str, set[str]]:
    """Return the functions of nvidia-ml-py and the C symbols that each one requests."""
    text = source_of("pynvml")
    found: dict[str, set[str]] = {}
    for part in re.split(r"^(?=def )", text, flags=re.MULTILINE):
        name = re.match(r"def (nvml\w+)", part)
        if name:
            found[name[1]] = set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', part))
    for alias, target in re.findall(r"^(nvml\w+) = (nvml\w+)$", text, re.MULTILINE):
        found.setdefault(alias, found.get(target, set()))
    return found


def test_every_symbol_of_nvidia_ml_py_is_exported() -> None:
    wanted = {symbol for symbols in bound().values() for symbol in symbols}
    assert len(wanted) > 300, importlib.metadata.version("nvidia-ml-py")
    new = wanted - functions().keys()
    assert not new, f"new in nvidia-ml-py, add to symbols.txt: {sorted(new)}"


def test_the_library_exports_exactly_the_list(state_dir: str) -> None:
    name = control.start(state_dir, "a30")
    lib = ctypes.CDLL(control.library(state_dir, name))
    assert {s for s in functions() if not hasattr(lib, s)} == missing(580)
    assert library.implemented() <= functions().keys()
    assert not hasattr(lib, "session_open"), "nothing of ours is visible"


# Monitors call these. The simulated boards return NOT_SUPPORTED: data-centre GPUs have no fans, Linux has no
# driver model, an idle board has neither per-process samples nor confidential computing, and the hosts have no
# coherent memory.
NOT_ANSWERED = {
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetDriverModel_v2",
    "nvmlDeviceGetDriverModel",
    "nvmlDeviceGetProcessUtilization",
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetAddressingMode",
}


@pytest.mark.parametrize("client", ["nvitop", "gpustat", "aliquot.hardware"])
def test_implemented_against_used(client: str) -> None:
    if importlib.util.find_spec(client) is None:
        pytest.skip(f"{client} is not installed")
    functions = bound()
    words = set(re.findall(r"\bnvml[A-Z]\w+", source_of(client))) & set(functions)
    used = {symbol for word in words for symbol in functions[word]}
    assert len(used) > 5
    assert used - library.implemented() - NOT_ANSWERED == set()


def test_an_unimplemented_call_is_refused_and_logged(state_dir: str) -> None:
    name = control.start(state_dir, "a30")
    lib = ctypes.CDLL(control.library(state_dir, name))
    assert lib.nvmlUnitGetCount(ctypes.byref(ctypes.c_uint())) == 1, "not before nvmlInit"
    assert lib.nvmlInit_v2() == 0
    assert lib.nvmlUnitGetCount(ctypes.byref(ctypes.c_uint())) == 3
    assert lib.nvmlShutdown() == 0
    records = [c for c in SimClient(state_dir, name).calls() if c.get("implemented") is False]
    assert [(r["call"], r["rc"]) for r in records] == [("nvmlUnitGetCount", 3)]


def test_without_a_compiler_the_error_says_what_to_do(
    state_dir: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = control.start(state_dir, "a30")
    monkeypatch.delenv("ALIQUOT_CACHE_DIR", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(AliquotError) as caught:
        control.library(state_dir, name)
    assert "no C compiler" in caught.value.brief
    assert "gcc" in str(caught.value.next_step)


def test_a_compiler_that_fails_is_quoted(state_dir: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'out of cheese' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    name = control.start(state_dir, "a30")
    with pytest.raises(AliquotError) as caught:
        control.library(state_dir, name)
    assert caught.value.details == ("out of cheese",)


def test_a_library_from_a_folder_that_others_can_write_in_is_not_loaded(
    state_dir: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Otherwise the library would run as the user of the command, which may be root.
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o1777)
    monkeypatch.setenv("ALIQUOT_CACHE_DIR", str(cache))
    name = control.start(state_dir, "a30")
    with pytest.raises(BlockedError, match="all users can write in it"):
        control.library(state_dir, name)


def test_the_library_is_built_once_and_copied(state_dir: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ALIQUOT_CACHE_DIR", raising=False)
    one, two = (control.start(state_dir, "a30") for _ in range(2))
    first, second = Path(control.library(state_dir, one)), Path(control.library(state_dir, two))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_ino != second.stat().st_ino, "two nodes can be open in one process"
    before = first.stat().st_mtime_ns
    assert Path(control.library(state_dir, one)).stat().st_mtime_ns == before
    assert len(list((Path(state_dir) / "sim/lib").glob("*.so"))) == 1
