"""The boot record: the recorded requests, what a new request keeps of the previous one, and the request after a
boot.
"""

from __future__ import annotations

import msgspec

from aliquot.core.config import boot_record as record
from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import GpuVirtualization, Inventory, Vgpu, VirtualFunction
from support.factory import inventory, with_instances

replace = msgspec.structs.replace
NODE = inventory("a100-sxm4-40gb*2")
ONE, TWO = (g.pci for g in NODE.gpus)
CUT = (DesiredInstance(9, "3g.20gb", (2,)),)
A2_4Q = DesiredVgpu(746, "NVIDIA A2-4Q")


def desired(*desired_gpus: DesiredGpu, name: str = "train") -> Desired:
    return Desired(desired_gpus, name)


def shared(node: Inventory, pci: str, *vgpus: Vgpu, functions: int = 0, bound: tuple[str, ...] = ()) -> Inventory:
    """Return the node with vGPUs and virtual functions on one GPU."""
    found = tuple(VirtualFunction(f"{pci[:-1]}{n}", n, "nvidia") for n in range(functions))
    found += tuple(VirtualFunction(b, 90, "vfio-pci") for b in bound)
    gpus = tuple(
        replace(g, vgpus=vgpus, virtual=GpuVirtualization(total=16, functions=found)) if g.pci == pci else g
        for g in node.gpus
    )
    return replace(node, gpus=gpus)


def test_there_and_back() -> None:
    full = DesiredGpu(
        ONE,
        True,
        CUT,
        "wish.yaml:4",
        vgpus=(A2_4Q,),
        functions=True,
        mixed_size=False,
        passthrough=False,
        vfio_bound=("x",),
    )
    kept = record.BootRecord(
        (RecordedRequest(full, "GPU-1", "train"), RecordedRequest(DesiredGpu(TWO, None, None), "GPU-2"))
    )
    assert msgspec.json.decode(msgspec.json.encode(kept), type=record.BootRecord) == kept


def test_another_request_replaces_the_one_of_its_gpu_only() -> None:
    first = record.merge_requests((), desired(DesiredGpu(ONE, True, CUT), DesiredGpu(TWO, True, ())), NODE)
    second = record.merge_requests(first, desired(DesiredGpu(TWO, False, ()), name="off"), NODE)
    assert [(k.desired.pci, k.desired.mig, k.name) for k in second] == [(ONE, True, "train"), (TWO, False, "off")]
    assert {k.uuid for k in second} == {g.uuid for g in NODE.gpus}
    assert record.merge_requests(second, desired(DesiredGpu(TWO, False, ()), name="off"), NODE) == second


def test_a_request_for_functions_keeps_what_was_asked_and_is_still_there() -> None:
    after = with_instances(NODE, 0, "3g.20gb@0")
    first = record.merge_requests((), desired(DesiredGpu(ONE, True, CUT)), after)
    both = record.merge_requests(first, desired(DesiredGpu(ONE, None, None, functions=True)), after)
    assert (both[0].desired.mig, both[0].desired.instances, both[0].desired.functions) == (True, CUT, True)
    wiped = replace(after, gpus=(replace(after.gpus[0], instances=()), after.gpus[1]))
    lost = record.merge_requests(first, desired(DesiredGpu(ONE, None, None, functions=True)), wiped)
    assert lost[0].desired.instances is None, "instances that the driver lost are not requested again"


def test_compute_instances_are_still_there_however_they_are_grouped() -> None:
    # The user requests two compute instances by name, each in its own GPU instance. The desired state counts them in
    # one.
    loose = (DesiredInstance(9, "3g.20gb", (0, 0), loose=True),)
    after = with_instances(NODE, 0, "3g.20gb@0:1c.3g.20gb", "3g.20gb@4:1c.3g.20gb")
    first = record.merge_requests((), desired(DesiredGpu(ONE, True, loose)), after)
    both = record.merge_requests(first, desired(DesiredGpu(ONE, None, None, functions=True)), after)
    assert both[0].desired.instances == loose
    fewer = with_instances(NODE, 0, "3g.20gb@0:1c.3g.20gb")
    assert (
        record.merge_requests(first, desired(DesiredGpu(ONE, None, None, functions=True)), fewer)[0].desired.instances
        is None
    )


def test_a_request_for_instances_keeps_only_the_vgpus_that_stayed() -> None:
    vgpu = Vgpu("f", 746, "NVIDIA A2-4Q")
    first = record.merge_requests((), desired(DesiredGpu(ONE, None, None, vgpus=(A2_4Q,), functions=True)), NODE)
    stays = record.merge_requests(first, desired(DesiredGpu(ONE, True, CUT)), shared(NODE, ONE, vgpu, functions=2))
    assert (stays[0].desired.vgpus, stays[0].desired.functions) == ((A2_4Q,), True)
    gone = record.merge_requests(first, desired(DesiredGpu(ONE, True, CUT)), NODE)
    assert (gone[0].desired.vgpus, gone[0].desired.functions) == (None, None)


def test_passthrough_replaces_everything_and_is_replaced_whole() -> None:
    first = record.merge_requests((), desired(DesiredGpu(ONE, True, CUT)), with_instances(NODE, 0, "3g.20gb@0"))
    handed = record.merge_requests(first, desired(DesiredGpu(ONE, None, None, passthrough=True)), NODE)
    assert handed[0].desired == DesiredGpu(ONE, None, None, passthrough=True)
    back = record.merge_requests(handed, desired(DesiredGpu(ONE, None, None, passthrough=False)), NODE)
    assert back[0].desired == DesiredGpu(ONE, None, None, passthrough=False)


def test_bound_functions_are_kept_beside_a_later_request() -> None:
    after = shared(NODE, ONE, functions=1, bound=("0000:07:00.7",))
    first = record.merge_requests((), desired(DesiredGpu(ONE, None, None, vfio_bound=("0000:07:00.7",))), after)
    second = record.merge_requests(first, desired(DesiredGpu(ONE, None, None, vgpus=())), after)
    assert second[0].desired.vfio_bound == ("0000:07:00.7",)


def test_replay_names_only_recorded_gpus_and_says_which_is_gone() -> None:
    kept = record.merge_requests((), desired(DesiredGpu(ONE, True, CUT)), NODE)
    got, gone = record.replay(kept, NODE)
    assert ([w.pci for w in got.gpus], got.name, gone) == ([ONE], "train", ())
    got, gone = record.replay(kept, replace(NODE, gpus=NODE.gpus[1:]))
    assert got.gpus == ()
    assert [f.rule for f in gone] == ["NO_SUCH_GPU"]
    assert ONE in gone[0].message


def test_replay_finds_a_gpu_at_its_new_address() -> None:
    kept = record.merge_requests((), desired(DesiredGpu(ONE, True, CUT)), NODE)
    moved = replace(NODE, gpus=(replace(NODE.gpus[0], pci="0000:99:00.0"), NODE.gpus[1]))
    got, gone = record.replay(kept, moved)
    assert ([w.pci for w in got.gpus], gone) == (["0000:99:00.0"], ())
    again = record.merge_requests(kept, desired(DesiredGpu("0000:99:00.0", True, ())), moved)
    assert [k.desired.pci for k in again] == ["0000:99:00.0"], "the same GPU is not recorded twice"


def test_functions_move_with_their_gpu() -> None:
    # A request may name virtual functions: they have the same distance from the GPU at any PCI address.
    vgpus = (
        DesiredVgpu(746, "NVIDIA A2-4Q", "0000:07:01.2"),
        DesiredVgpu(746, "NVIDIA A2-4Q"),
        DesiredVgpu(7, "x", ONE),
    )
    desired_gpu = DesiredGpu(ONE, None, None, vgpus=vgpus, vfio_bound=("0000:07:00.7", "0000:08:00.0", "vf"))
    kept = record.merge_requests((), desired(desired_gpu), NODE)
    moved = replace(NODE, gpus=(replace(NODE.gpus[0], pci="0001:99:1f.0"), NODE.gpus[1]))
    got = record.replay(kept, moved)[0].gpus[0]
    assert [v.function for v in got.vgpus or ()] == ["0001:9a:00.2", "", "0001:99:1f.0"]
    assert got.vfio_bound == ("0001:99:1f.7", "0001:9a:1f.0", "vf")


def test_another_gpu_in_the_same_slot_gets_nothing() -> None:
    kept = record.merge_requests((), desired(DesiredGpu(ONE, True, CUT)), NODE)
    other = replace(NODE, gpus=(replace(NODE.gpus[0], uuid="GPU-another"), NODE.gpus[1]))
    got, gone = record.replay(kept, other)
    assert (got.gpus, len(gone)) == ((), 1)


def test_plugin_parameters_that_a_request_leaves_as_they_are_are_recorded_too() -> None:
    vgpu = Vgpu("0000:07:00.4", 746, "NVIDIA A2-4Q", "u", parameters="enable_uvm=1")
    node = shared(NODE, ONE, vgpu, replace(vgpu, function="0000:07:00.5", parameters=""))
    merged = record.merge_requests((), desired(DesiredGpu(ONE, None, None, vgpus=(A2_4Q, A2_4Q))), node)
    assert [v.parameters for v in merged[0].desired.vgpus or ()] == ["enable_uvm=1", None]


def test_a_scheduler_that_a_request_leaves_is_recorded_while_the_gpu_has_it() -> None:
    old = DesiredGpu(ONE, None, None, scheduler="equal-share,2ms")
    kept = record.merge_requests((), desired(old), NODE)
    new = DesiredGpu(ONE, None, None, vgpus=(A2_4Q,))
    for scheduler, recorded in (("equal-share,2ms", "equal-share,2ms"), ("best-effort", None), ("", None)):
        node = shared(NODE, ONE, Vgpu("0000:07:00.4", 746, "NVIDIA A2-4Q", "u"))
        gpu = node.gpus[0]
        assert gpu.virtual is not None
        gpu = replace(gpu, virtual=replace(gpu.virtual, scheduler=scheduler))
        (merged, *_) = record.merge_requests(kept, desired(new), replace(node, gpus=(gpu, *node.gpus[1:])))
        assert merged.desired.scheduler == recorded
