"""Features of the NVML backend only: drivers that differ from the catalog, GPUs without a table, version fallbacks, the
number of calls and imports. Uses the shim of simulated nodes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FunctionType

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import AliquotError, HardwareError, NoDriverError
from aliquot.foundation.paths import simulated_nodes
from aliquot.hardware.nvml import binding as nvml_binding
from aliquot.hardware.nvml.backend import NvmlBackend, unavailable_reason
from aliquot.sim import lifecycle as control
from contract.conftest import Machine

Start = Callable[[str], Machine]


def shim(node: Machine, proc_root: str | None = None) -> NvmlBackend:
    backend = node.open("shim")
    assert isinstance(backend, NvmlBackend)
    if proc_root is None:
        return backend
    backend.close()
    own = NvmlBackend(control.library(node.state_dir, node.name), node.name, proc_root=proc_root)
    node.closing(own)
    return own


# -- a host without a driver


def test_no_library(tmp_path: Path) -> None:
    with pytest.raises(NoDriverError) as caught:
        NvmlBackend(str(tmp_path / "libnvidia-ml.so.1"))
    assert caught.value.next_step


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not an ELF file")
    with pytest.raises(NoDriverError):
        NvmlBackend(str(tmp_path / "libnvidia-ml.so.1"))


def test_a_library_without_nvml_in_it() -> None:
    import _ctypes

    with pytest.raises(NoDriverError) as caught:
        NvmlBackend(_ctypes.__file__)
    assert "FUNCTION_NOT_FOUND" in caught.value.details[0]


def test_a_driver_root_without_a_driver(tmp_path: Path) -> None:
    error = unavailable_reason(str(tmp_path))
    assert isinstance(error, NoDriverError)
    assert str(tmp_path) in error.brief


def test_a_driver_below_another_root(machine: Start, tmp_path: Path) -> None:
    node = machine("a30")
    folder = tmp_path / "usr/lib64"
    folder.mkdir(parents=True)
    (folder / nvml_binding.LIBRARY).symlink_to(control.library(node.state_dir, node.name))
    backend = NvmlBackend(node=node.name, proc_root=None, driver_root=str(tmp_path))
    node.closing(backend)
    assert backend.read().gpus[0].family == "a30-24gb"


def test_a_simulated_nodes_library_is_never_taken_for_the_machines(machine: Start) -> None:
    # The loader returns an already loaded library for the plain name.
    shim(machine("a30"))
    error = unavailable_reason()
    if error is not None:
        assert isinstance(error, NoDriverError)
        assert "looking for" in error.brief
    else:
        simulated = str(machine("a30").node.show())
        assert not any(gpu.uuid in simulated for gpu in NvmlBackend().read().gpus)


# -- tables


def test_an_unknown_gpu_works_from_its_own_tables(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "family_of_device", lambda pci_device, subsystem=None: None)
    node = machine("rtx-pro-6000-blackwell-server-edition")
    backend = shim(node)
    off = backend.read()
    (gpu,) = off.gpus
    assert gpu.family == "nvml-0x2BB510DE"
    assert "estimate until MIG mode is on" in off.notes[0]
    backend.set_mode(gpu.pci, True)
    on = backend.read()
    table, known = on.family(on.gpus[0]), catalog.family("rtx-pro-6000-96gb")
    assert table.source == "nvml"
    assert (table.memory_slices, table.compute_slices, table.slot_model) == (12, 4, "quarters")
    assert {p.id: (p.name, p.placements) for p in table.profiles} == {
        p.id: (p.name, p.placements) for p in known.profiles
    }
    for profile, start in ((5, 6), (14, 0)):
        size = table.by_id[profile].size
        made = backend.create_gpu_instance(gpu.pci, profile, start, size)
        compute = table.by_id[profile].default_compute
        backend.create_compute_instance(gpu.pci, made, compute.id, None, compute.size)
    found = backend.read().gpus[0]
    assert sorted((i.profile, i.placement) for i in found.instances) == [("1g.24gb", "0:3"), ("2g.48gb", "6:6")]
    assert all(i.compute_instances for i in found.instances)


def test_an_unknown_gpu_on_a_driver_that_lists_nothing(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "family_of_device", lambda pci_device, subsystem=None: None)
    inventory = shim(machine("a30@535.183.01")).read()
    assert inventory.gpus[0].family is None
    assert inventory.gpus[0].mig.capable
    assert "lists their profiles only in MIG mode" in inventory.notes[0]


def test_names_that_moved_since_the_catalog(machine: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver keeps its names. The test changes the catalog instead: same ids, older names.
    true = catalog.family("a30-24gb")

    def older(name: str) -> str:
        return name.replace("1g.6gb", "1g.5gb")

    profiles = tuple(msgspec.structs.replace(p, name=older(p.name)) for p in true.profiles)
    rules = tuple(msgspec.structs.replace(r, profiles=tuple(map(older, r.profiles))) for r in true.rules)
    stale = msgspec.structs.replace(true, profiles=profiles, rules=rules)
    monkeypatch.setattr(catalog, "family", lambda name: stale)
    inventory = shim(machine("a30*2")).read()
    (table,) = inventory.tables
    assert table.name == "a30-24gb"
    assert table.by_name["1g.5gb"].name == "1g.6gb"
    assert [r.profiles for r in table.rules] == [r.profiles for r in true.rules]
    assert inventory.notes == ()


def test_an_older_driver_offers_less_and_says_so(machine: Start) -> None:
    inventory = shim(machine("a100-sxm4-40gb@470.57.02")).read()
    table = inventory.family(inventory.gpus[0])
    assert "1g.10gb" not in table.by_name
    assert any("1g.10gb" in note and "R525" in note for note in inventory.notes)


@pytest.mark.parametrize("version", [2, 1])
def test_older_versions_of_the_profile_answer(machine: Start, version: int) -> None:
    node = machine("a100-sxm4-40gb")
    backend = shim(node)
    node.node.inject_fault("fail", call="DeviceGetGpuInstanceProfileInfo", code=25, calls=3 - version)
    inventory = backend.read()
    assert backend.session.profile_info_version == version
    assert inventory.tables == ()
    assert inventory.notes == ()


# -- a GPU that is lost before its name is read


def test_a_lost_gpu_is_named_by_the_kernel(machine: Start, tmp_path: Path) -> None:
    node = machine("a30*3")
    before = shim(node).read()
    for gpu in before.gpus:
        (tmp_path / "driver/nvidia/gpus" / gpu.pci).mkdir(parents=True)
    node.node.inject_fault("fail", call="DeviceGetPciInfo", code=15, gpu=1, calls=1)
    found = shim(node, str(tmp_path)).read()
    assert [g.lost for g in found.gpus] == [False, True, False]
    assert [g.pci for g in found.gpus] == [g.pci for g in before.gpus]


def test_a_lost_gpu_without_a_name(machine: Start, tmp_path: Path) -> None:
    node = machine("a30*2")
    node.node.inject_fault("fail", call="DeviceGetPciInfo", code=15, gpu=0, calls=1)
    found = shim(node, str(tmp_path)).read()
    assert [(g.lost, g.pci) for g in found.gpus] == [(True, "lost-0"), (False, "0000:02:00.0")]


def test_a_gpu_that_falls_off_in_the_middle_of_a_look(machine: Start) -> None:
    node = machine("a30*3")
    backend = shim(node)
    node.node.inject_fault("fail", call="DeviceGetMinorNumber", code=15, gpu=1, calls=1)
    assert [g.lost for g in backend.read().gpus] == [False, True, False]


# -- each code becomes its error


@pytest.mark.parametrize("code", [2, 3, 4, 10, 15, 17, 19, 20, 23, 27, 999])
def test_a_write_that_fails_says_what_was_tried(machine: Start, code: int) -> None:
    node = machine("h100-80gb-hbm3")
    backend = shim(node)
    pci = backend.read().gpus[0].pci
    backend.set_mode(pci, True)
    node.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=code, calls=1)
    with pytest.raises(AliquotError) as caught:
        backend.create_gpu_instance(pci, 9, 4, 4)
    assert type(caught.value) is type(codes.error(code, ""))
    assert caught.value.brief.startswith(f"creating a GPU instance of profile 9 at 4:4 on {pci} failed: ")
    assert backend.create_gpu_instance(pci, 9, 4, 4) == 2


def test_a_half_done_create_is_seen(machine: Start) -> None:
    node = machine("h100-80gb-hbm3")
    backend = shim(node)
    pci = backend.read().gpus[0].pci
    backend.set_mode(pci, True)
    node.node.inject_fault("half-create", gpu=0, what="gpu")
    with pytest.raises(HardwareError) as caught:
        backend.create_gpu_instance(pci, 9, 4, 4)
    assert caught.value.nvml_code == 999
    assert [i.placement for i in backend.read_gpu(pci).instances] == ["4:4"]


def server_pid(node: Machine) -> int:
    """Return the pid of the node's server: the process that listens on its socket."""
    with closing(control.connect(simulated_nodes(node.state_dir), "control.sock")) as lines:
        return int(msgspec.json.decode(lines.request('{"do": "ping"}'), type=dict[str, int])["pid"])


def test_the_server_may_die_between_calls(machine: Start) -> None:
    node = machine("h100-80gb-hbm3*2")
    backend = shim(node)
    before = backend.read()
    os.kill(server_pid(node), signal.SIGKILL)
    assert backend.read() == before


# -- cost


def test_calls_for_an_eight_gpu_node(machine: Start) -> None:
    # Covers the plan path: two reads of an empty node, one of a full node, one of a single GPU.
    node = machine("dgx-a100")
    for index in range(8):
        node.node.set_mode(index, True)
    backend = shim(node)
    backend.read()
    first = backend.calls
    backend.read()
    assert first <= 160
    assert backend.calls - first <= 90
    for index in range(8):
        for _ in range(7):
            node.node.create(index, "1g.5gb")
    fresh = backend.calls
    backend.read()
    full = backend.calls - fresh
    assert full <= 8 * (5 + 1 + 7 * 3 + 1 + 7 * 4)
    backend.read_gpu(node.node.show()["gpus"][0]["pci"])
    assert backend.calls - fresh - full <= 27


def test_what_opening_nvml_imports() -> None:
    # An import of ctypes.util takes as long as Python's start. Without it the binding still has a working find_library.
    program = (
        "import sys, aliquot.hardware.nvml.backend as n\n"
        "from aliquot.hardware.nvml import binding as nvml_binding\n"
        "nv = nvml_binding.private_copy()\n"
        "heavy = {'shutil', 'subprocess', 'tempfile', 'ctypes.util', 'pynvml'} & set(sys.modules)\n"
        "print(sorted(heavy)); print(nv.find_library('c'))\n"
        "import ctypes.util; print(ctypes.util.find_library('c'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    heavy, through, direct = done.stdout.splitlines()
    assert heavy == "[]"
    assert through == direct


def test_the_binding_is_private() -> None:
    import pynvml

    one, two = nvml_binding.private_copy(), nvml_binding.private_copy()
    assert one is not two
    assert sys.modules["pynvml"] is pynvml
    assert pynvml not in (one, two)


def test_copies_of_the_binding_share_classes_and_no_function() -> None:
    # Each import of pynvml created its classes again, which ctypes never frees: 1.3 MB for each session.
    one, two = vars(nvml_binding.private_copy()), vars(nvml_binding.private_copy())
    assert one["NVMLError"] is two["NVMLError"]
    assert one["_nvmlGetFunctionPointer_cache"] is not two["_nvmlGetFunctionPointer_cache"]
    for names in (one, two):
        functions = [f for f in names.values() if isinstance(f, FunctionType) and f.__module__ == "pynvml"]
        for function in functions:
            wrapped = [c.cell_contents for c in function.__closure__ or () if isinstance(c.cell_contents, FunctionType)]
            functions += wrapped
            assert function.__globals__ is names, function
        assert len(functions) > len({f.__name__ for f in functions}) > 400, "including decorated functions"


def test_nodes_that_are_opened_at_the_same_time_have_a_binding_each() -> None:
    # The page reads a node and plans for it in threads: one thread lost a half-initialized module of the other one.
    code = (
        "import sys\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from aliquot.hardware.nvml import binding as nvml_binding\n"
        "sys.setswitchinterval(1e-6)\n"
        "with ThreadPoolExecutor(8) as pool:\n"
        "    made = [*pool.map(lambda _: nvml_binding.private_copy(), range(40))]\n"
        "assert len({id(each) for each in made}) == 40\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr


def test_a_node_that_was_stopped_and_started_again(state_dir: str) -> None:
    found = []
    for template in ("a30", "h100-80gb-hbm3", "a30*2"):
        name = control.start(state_dir, template, "again")
        backend = NvmlBackend(control.library(state_dir, name), name, proc_root=None)
        found.append([g.family for g in backend.read().gpus])
        backend.close()
        control.stop(state_dir, name)
    assert found == [["a30-24gb"], ["h100-80gb-sxm"], ["a30-24gb", "a30-24gb"]]


def test_sessions_on_one_library_share_its_binding(machine: Start) -> None:
    # Each session copied the binding. The metrics server opens a session every few seconds.
    node = machine("a30")
    one, two = shim(node), shim(node)
    assert one.session.nv is two.session.nv
    one.close()
    assert len(two.read().gpus) == 1, "the driver counts the sessions"
    two.close()
    assert shim(node).session.nv is one.session.nv
    assert shim(machine("a100")).session.nv is not one.session.nv


def loaded(name: str) -> tuple[int, int]:
    """Return how many libraries below a node's directory are mapped, and how many descriptors are open."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return len({line.split()[4] for line in maps if f"/{name}/" in line}), len(os.listdir("/proc/self/fd"))


def test_a_node_that_is_started_again_and_again_loads_one_library(state_dir: str) -> None:
    # Each start left a library and a descriptor in a process that read the node.
    found = []
    for _ in range(4):
        name = control.start(state_dir, "a30", "often")
        NvmlBackend(control.library(state_dir, name), name, proc_root=None).close()
        control.stop(state_dir, name)
        found.append(loaded(name))
    assert found == [(1, found[0][1])] * 4


def test_a_node_that_is_started_again_while_it_is_open(state_dir: str) -> None:
    # The loaded library stays with the removed node. It serves the next node after its session has ended.
    backends = []
    for _ in range(4):
        name = control.start(state_dir, "a30", "held")
        backends.append(NvmlBackend(control.library(state_dir, name), name, proc_root=None))
        assert len(backends[-1].read().gpus) == 1
        if len(backends) > 1:
            with pytest.raises(NoDriverError):
                backends[-2].read()
            backends[-2].close()
        control.stop(state_dir, name)
    assert loaded("held")[0] == 2
    backends[-1].close()


def test_two_nodes_in_one_process(machine: Start) -> None:
    one, two = shim(machine("a30")), shim(machine("h100-80gb-hbm3*2"))
    assert [g.family for g in one.read().gpus] == ["a30-24gb"]
    assert [g.family for g in two.read().gpus] == ["h100-80gb-sxm"] * 2
    one.close()
    assert len(two.read().gpus) == 2
