"""Plugin parameters of vGPUs in plans: what stays, what is created again, drift, and the rule on series."""

from __future__ import annotations

import pytest

import support.vgpufactory as factory
from aliquot.core.model.actions import CreateVgpu, DestroyVgpu
from aliquot.core.model.desired import DesiredVgpu
from aliquot.core.model.inventory import Gpu, Holder
from aliquot.core.model.plan import Plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.verify import verify
from unit.core.planner.sharing import A2, BARE, T4, asked, blocker, done, kind, kinds, replace

UVM = "enable_uvm=1"


def requested(of: Gpu, count: int, parameters: str | None, product: str = A2, short: str = "4Q") -> Plan:
    name, type_id = kind(product, short)
    vgpu = DesiredVgpu(type_id, name, parameters=parameters)
    return asked(of, replace(BARE, vgpus=(vgpu,) * count))


def carrying(*texts: str, product: str = A2) -> Gpu:
    """Return a GPU with a vGPU for each text. The functions before the first and between them are free."""
    of = factory.having(factory.gpu(product), *((factory.kind(product, "4Q"), 2 * n + 1) for n in range(len(texts))))
    return replace(of, vgpus=tuple(replace(v, parameters=p) for v, p in zip(of.vgpus, texts, strict=True)))


@pytest.mark.parametrize("product", [A2, T4], ids=["a2", "t4"])
def test_only_vgpus_with_other_parameters_are_created_again(product: str) -> None:
    of = carrying(UVM, "", product=product)
    got = requested(of, 2, UVM, product)
    assert kinds(got) == [DestroyVgpu, CreateVgpu]
    gone, new = got.actions
    assert isinstance(gone, DestroyVgpu)
    assert isinstance(new, CreateVgpu)
    assert (gone.function, gone.uuid) == of.vgpus[1].key
    assert gone.reason == 'other plugin parameters requested by "x"'
    # A VM knows its vGPU by these.
    assert (new.function, new.uuid) == (gone.function, gone.uuid)
    assert (new.parameters, got.unchanged) == (UVM, 1)
    assert [v.parameters for v in done(of, got).vgpus] == [UVM, UVM]


def test_a_request_without_parameters_leaves_them_and_an_empty_one_ends_them() -> None:
    of = carrying(UVM, "")
    assert requested(of, 2, None).actions == ()
    assert [v.parameters for v in done(of, requested(of, 2, "")).vgpus] == ["", ""]


def test_a_held_vgpu_is_not_created_again() -> None:
    of = carrying("")
    held = replace(of, vgpus=(replace(of.vgpus[0], holders=(Holder("vm", "4711", "win10"),)),))
    got = blocker(requested(held, 1, UVM))
    assert (got.rule, "win10" in str(got.holders)) == ("HELD", True)


def test_drift_names_the_function_and_both_parameters() -> None:
    of = carrying(UVM, "")
    (drift,) = verify(factory.node(of), requested(of, 2, UVM).desired)
    assert (drift.kind, drift.expected, drift.found) == ("vgpu-parameters", UVM, "none")
    assert of.vgpus[1].function in drift.message


def test_the_way_back_has_the_parameters() -> None:
    of = carrying(UVM, "")
    after = done(of, requested(of, 2, "disable_vnc=1"))
    back = make_restore_point(factory.node(of), [of.pci])
    assert [v.parameters for v in done(after, asked(after, back.gpus[0])).vgpus] == [UVM, ""]


def test_cuda_parameters_need_a_series_with_cuda() -> None:
    got = blocker(requested(factory.gpu(A2), 1, UVM, short="2B"))
    assert (got.rule, "enable_uvm" in got.message, "NVIDIA A2-2B" in got.message) == ("PARAMETER", True, True)
    for fine in ("frame_rate_limiter=0", "enable_uvm=0"):
        assert requested(factory.gpu(A2), 1, fine, short="2B").blockers == ()
    assert requested(factory.gpu(A2), 1, UVM, short="4C").blockers == ()


def test_a_vgpu_of_another_type_on_the_same_function_inherits_none() -> None:
    of = factory.gpu(A2)
    of = done(of, requested(of, 1, UVM))
    got = requested(of, 1, None, short="8Q")
    assert kinds(got) == [DestroyVgpu, CreateVgpu]
    assert [(v.key, v.parameters) for v in done(of, got).vgpus] == [(of.vgpus[0].key, "")]
