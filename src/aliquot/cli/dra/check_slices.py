"""Findings about resource slices: pools that the scheduler skips, and GPUs that two pools publish. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aliquot.cli.doctor.finding import DoctorFinding, first_names
from aliquot.cli.dra.check_facts import DraFacts, is_own
from aliquot.foundation.decimals import counted
from aliquot.kubernetes.dra.model.layout import is_combined
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.slices import read_publication
from aliquot.kubernetes.dra.model.validation import SliceFault, find_faults
from aliquot.kubernetes.dra.view.pools import gpu_pools

SLICES = "resource slices"
POOL_CODES = ("DUPLICATE_COUNTER_SET", "DUPLICATE_DEVICE", "NO_SUCH_COUNTER", "SLICE_COUNT")
"""The faults that the API server lets pass. Only these are of interest in another driver, whose devices may have
fields that Aliquot does not know.
"""

_Key = tuple[str, str, str]
"""Node, driver and pool."""


def slice_findings(facts: DraFacts) -> Iterator[DoctorFinding]:
    """Check the pools of every driver. Nothing is found if the slices could not be read."""
    if facts.slices is None:
        return
    found = [*_pools(facts, facts.slices), *_shared_gpus(facts.slices)]
    yield from found
    own = sum(len(each.spec.devices) for slices in facts.own.values() for each in slices)
    driver = f"driver {facts.naming.driver}"
    if not own:
        yield _nothing(facts.slices, driver)
    elif not found:
        message = f"{counted(len(facts.own), 'node')} of {driver} with {counted(own, 'device')}: every pool is valid"
        yield DoctorFinding(SLICES, "SLICES", "ok", message)


def _nothing(slices: Sequence[ResourceSlice], driver: str) -> DoctorFinding:
    """Return the finding for a driver without devices, which may have another name in this cluster."""
    other = next((each.spec.driver for each in slices if is_own(DriverNaming(each.spec.driver), each)), "")
    message = f"no claim agent publishes a device of {driver}"
    step = "kubectl get resourceslices"
    if other:
        message += f"; here the driver is {other}"
        step = f"aliquot dra check --dra-driver {other}"
    return DoctorFinding(SLICES, "SLICES", "note", message, next_step=step)


def _pools(facts: DraFacts, slices: Sequence[ResourceSlice]) -> Iterator[DoctorFinding]:
    views = {(view.node, view.driver, view.pool): view for view in gpu_pools(slices, facts.claims or ())}
    pools: dict[_Key, list[ResourceSlice]] = {}
    for each in slices:
        if each.spec.node_name:
            pools.setdefault((each.spec.node_name, each.spec.driver, each.spec.pool.name), []).append(each)
    for key, members in sorted(pools.items()):
        node, driver, pool = key
        where = f"pool {pool} of driver {driver} on node {node}"
        view = views.get(key)
        for problem in view.problems if view is not None else ():
            step = f"aliquot dra show {node}"
            yield DoctorFinding(SLICES, "POOL", "problem", f"{where}: {problem}", next_step=step)
        faults = _faults(facts, members, node, counted_already=view is not None)
        if faults:
            more = f", and {counted(len(faults) - 1, 'more fault')}" if len(faults) > 1 else ""
            step = f"kubectl get resourceslices --field-selector spec.nodeName={node} -o yaml"
            yield DoctorFinding(SLICES, "POOL", "problem", f"{where} is invalid: {faults[0]}{more}", next_step=step)


def _faults(facts: DraFacts, members: Sequence[ResourceSlice], node: str, *, counted_already: bool) -> list[SliceFault]:
    """Return the faults of a pool's newest slices: older ones are ignored by the scheduler."""
    newest = max(each.spec.pool.generation for each in members)
    current = [each for each in members if each.spec.pool.generation == newest]
    own = all(is_own(facts.naming, each) for each in members)
    found = find_faults(current, node, combined=is_combined(facts.release))
    faults = [fault for fault in found if own or fault.code in POOL_CODES]
    if any(fault.code == "SLICE_COUNT" for fault in faults):
        # The counters may be in the slice that lacks.
        faults = [fault for fault in faults if fault.code != "NO_SUCH_COUNTER"]
    return [fault for fault in faults if fault.code != "SLICE_COUNT" or not counted_already]


def _shared_gpus(slices: Sequence[ResourceSlice]) -> Iterator[DoctorFinding]:
    """Find the GPUs, by PCI address or UUID, that several pools of a node publish.

    A device without a UUID is not a GPU, and the address of a device without a node is not unique.
    """
    nodes: dict[str, dict[str, set[tuple[str, str]]]] = {}
    for each in slices:
        for device in read_publication([each]).devices if each.spec.node_name else ():
            for name in filter(None, (device.pci, device.gpu_uuid)) if device.gpu_uuid else ():
                pools = nodes.setdefault(each.spec.node_name, {}).setdefault(name, set())
                pools.add((each.spec.driver, each.spec.pool.name))
    for node, gpus in sorted(nodes.items()):
        for rivals in sorted({tuple(sorted(pools)) for pools in gpus.values() if len(pools) > 1}):
            shared = sorted(name for name, pools in gpus.items() if tuple(sorted(pools)) == rivals)
            named = " and ".join(f"driver {driver} (pool {pool})" for driver, pool in rivals)
            message = f"node {node}: {named} publish the same GPUs, so two pods can get one: {first_names(shared)}"
            step = f"kubectl get resourceslices --field-selector spec.nodeName={node}"
            yield DoctorFinding(SLICES, "TWO_DRIVERS", "problem", message, next_step=step)
