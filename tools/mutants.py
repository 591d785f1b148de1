"""Break one rule at a time and see which test notices. A suite that stays green on a wrong rule proves nothing.

Usage: python tools/mutants.py            run all and write docs/proof.md
       python tools/mutants.py NAME       run one and print the failing tests
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))

from tools.mutation_runner import fresh_pytest  # noqa: E402

TESTS = ("tests/laws/oracle/test_planner.py", "tests/laws/property/test_laws.py")
VGPU_TESTS = ("tests/laws/oracle/test_vgpu_planner.py", "tests/laws/property/test_vgpu_laws.py")
MIXED_INSTANCES = ("tests/laws/oracle/test_mixed_instances.py",)
PARAMETERS = ("tests/unit/core/planner/vgpu/test_parameters.py",)
SCHEDULER = ("tests/unit/core/planner/vgpu/test_scheduler.py",)
INSTANCE_SCHEDULER = ("tests/unit/core/planner/vgpu/test_instance_scheduler.py",)
HARVESTER, KUBEVIRT = "kubernetes/virtual_machines/harvester", "kubernetes/virtual_machines/kubevirt"
_UNITS = "tests/unit/kubernetes/virtual_machines"
OBJECTS = (f"{_UNITS}/harvester",)
LAYOUTS, VGPUS = ((f"{_UNITS}/harvester/test_{kind}_objects.py",) for kind in ("mig", "vgpu"))
PERIPHERALS = f"{HARVESTER}/peripherals"
PERIPHERAL_OBJECTS = (f"{_UNITS}/harvester/peripherals",)
VM_POOLS = (f"{_UNITS}/pools/test_pool_decision.py",)
VM_POOL_AGENTS = (f"{_UNITS}/pools/test_agent_watch.py",)
VM_POOL_ROOM = (f"{_UNITS}/pools/test_gpu_room.py",)
VM_POOL_LAYOUTS = (f"{_UNITS}/pools/test_pool_layouts.py",)
VM_POOL_MOVES = (f"{_UNITS}/pools/test_pool_moves.py",)
VM_POOL_CONTROLLER = (f"{_UNITS}/controller/test_pools.py",)
VM_SLOTS = (f"{_UNITS}/harvester/test_boards_without_sriov.py",)
ADDON = ("tests/laws/property/test_harvester_addon.py",)
ADMISSION = (f"{_UNITS}/harvester/admission", f"{_UNITS}/kubevirt/admission")
BINDING = ("tests/contract/test_nvml.py",)
CAPACITY = (
    f"{_UNITS}/kubevirt",
    "tests/unit/kubernetes/virtual_machines/controller/test_capacity_pages.py",
    *ADMISSION,
)
FUNCTION_USERS = ("tests/unit/hardware/kernel/test_function_users.py",)
SAFEGUARDS = ("tests/unit/core/engine/test_safeguards.py",)
POWER = ("tests/laws/crash/test_power_cuts.py",)
HOST_PAGES, AGENTS = ("tests/laws/soak/test_host_pages.py",), ("tests/laws/soak/test_agents.py",)
CHANGES = ("tests/laws/oracle/test_changes.py",)
SHARES = ("tests/laws/oracle/test_shares.py",)
NODE_LAYOUTS = ("tests/laws/oracle/test_layouts.py",)
COMPUTE = ("tests/laws/oracle/test_compute.py", "tests/laws/property/test_laws.py")
BRANCHES = ("tests/contract/test_driver_branches.py",)
SLURM = ("tests/unit/slurm/node/test_apply_hazards.py",)
SLOTS = ("tests/unit/slurm/node/test_slots_beside_jobs.py",)
RESTART = ("tests/unit/slurm/node/test_restart_gate.py",)
DRA_COUNTERS = ("tests/laws/oracle/test_dra_counters.py",)
DRA_VM_COUNTERS = ("tests/laws/oracle/test_dra_vm_counters.py",)
VM_CLAIMS = ("tests/unit/kubernetes/dra/agent/test_vm_claims.py",)
DRA_PUBLICATION = ("tests/unit/kubernetes/dra/model/test_publication.py",)
DRA_WRITES = ("tests/unit/kubernetes/dra/model/test_writes.py",)
CLAIMS = ("tests/unit/kubernetes/dra/agent/test_preparer.py",)
CLAIM_STATUS = ("tests/unit/kubernetes/dra/agent/test_claim_status.py",)
CLAIM_VIEW = ("tests/unit/kubernetes/dra/view/test_allocated.py",)
DRA_CHECK = ("tests/system/cli/test_dra_findings.py",)
PRIORITIES = ("tests/laws/oracle/test_dra_priorities.py",)
FINGERPRINT = ("tests/unit/core/model/test_fingerprint.py",)


class Mutant(NamedTuple):
    """A wrong rule: ``old`` becomes ``new`` in one file below ``src/aliquot``."""

    what: str
    file: str
    old: str
    new: str
    tests: Sequence[str] = TESTS


MUTANTS = {
    "overlap": Mutant(
        "rule: two instances may share memory slice 3",
        "core/planner/placement_table.py",
        ".placement(start).mask for",
        ".placement(start).mask & ~8 for",
    ),
    "engines": Mutant(
        "rule: media engine limits (totals, +me, +me.all, maxima; each implies others) are not checked",
        "core/planner/rules.py",
        "    max_instances,\n    compute_slices,\n    engine_totals,\n    at_most,\n    excludes,\n",
        "    compute_slices,\n",
    ),
    "compute-kinds": Mutant(
        "rule: a second instance without graphics on Thor",
        "core/planner/rules.py",
        "== wanted) > rule.count",
        "== wanted) > rule.count + 1",
    ),
    "tie-break": Mutant(
        "tie-break: lowest start instead of the driver's own choice",
        "core/planner/placement_search.py",
        "for start in table.choices(profile_id, mask, slots_mirrored):",
        "for start in table.starts[profile_id]:",
    ),
    "held-first": Mutant(
        "cost: held instances weigh no more than idle ones",
        "core/planner/target_state.py",
        "return held, len(to_destroy),",
        "return 0, len(to_destroy),",
    ),
    "fewest": Mutant(
        "cost: the number of destroyed instances is not counted",
        "core/planner/target_state.py",
        "return held, len(to_destroy), inside[1], new,",
        "return held, 0, inside[1], 0,",
    ),
    "room": Mutant(
        "cost: headroom is not counted",
        "core/planner/placement_search.py",
        "-table.headroom(table.mask(arrangement)))",
        "0)",
    ),
    "compute-grouping": Mutant(
        "compute instances: only the grouping with the fewest GPU instances is searched",
        "core/planner/target_state.py",
        "for each in groupings(placement_table, requests)]",
        "for each in groupings(placement_table, requests)[:1]]",
        COMPUTE,
    ),
    "compute-chosen": Mutant(
        "drivers before R525: a compute instance goes to the lowest free slot, not to the driver's own choice",
        "core/planner/compute_instances.py",
        "key=lambda p: (-sum(not m & (taken | p.mask) for m in every), p.start), default",
        "key=lambda p: p.start, default",
        COMPUTE,
    ),
    "compute-branch": Mutant(
        "drivers before R525: compute instances are created at placements, by a call that they lack",
        "core/model/inventory.py",
        "not lacks(self.driver, PLACED_COMPUTE_INSTANCES)",
        "True",
        BRANCHES,
    ),
    "compute-new": Mutant(
        "compute instances: a grouping with more new GPU instances weighs the same",
        "core/planner/target_state.py",
        "return held, len(to_destroy), inside[1], new, inside[2]",
        "return held, len(to_destroy), inside[1], 0, inside[2]",
        COMPUTE,
    ),
    "compute-verify": Mutant(
        "verify: compute instances are compared in one grouping alone",
        "core/planner/verify.py",
        "for option in options)",
        "for option in options[:1])",
        COMPUTE,
    ),
    "vgpu-most": Mutant(
        "rule: the most of a vGPU type counts its own series only",
        "core/planner/vgpu/rules.py",
        "count = n if each.mig_backed else total",
        "count = n",
        VGPU_TESTS,
    ),
    "vgpu-order": Mutant(
        "order: new vGPUs in mixed-size mode are made from right to left",
        "core/planner/vgpu/mixed_size.py",
        "out.append((item, place))",
        "out.insert(0, (item, place))",
        VGPU_TESTS,
    ),
    "vgpu-room": Mutant(
        "rule: a vGPU in mixed-size mode covers one GiB less than it has",
        "core/planner/vgpu/placement_policies.py",
        "rounded = -(-vgpu_type.fb_mib // 1024)",
        "rounded = max(1, -(-vgpu_type.fb_mib // 1024) - 1)",
        VGPU_TESTS,
    ),
    "vgpu-one-size": Mutant(
        "rule: one GPU instance takes vGPUs of two sizes",
        "core/planner/vgpu/placement_policies.py",
        "having == profile and (not count or size == vgpu_type.fb_mib)",
        "having == profile",
        VGPU_TESTS,
    ),
    "vgpu-fewest": Mutant(
        "cost: vGPUs that go with their GPU instance are not counted",
        "core/planner/vgpu/mig_backed_search.py",
        "return cost[0] + held, cost[1] + gone,",
        "return cost[0] + held, cost[1],",
        VGPU_TESTS,
    ),
    "vgpu-held": Mutant(
        "cost: a held vGPU in mixed-size mode weighs no more than an idle one",
        "core/planner/vgpu/mixed_size.py",
        "return sum(h.vgpu.held for h in lost), len(lost)",
        "return 0, len(lost)",
        VGPU_TESTS,
    ),
    "mixed-instance-place": Mutant(
        "rule: a vGPU in a GPU instance in mixed-size mode is where a new one would be",
        "core/planner/vgpu/mixed_instances.py",
        "for at, mask in (known or [",
        "for at, mask in ([",
        MIXED_INSTANCES,
    ),
    "mixed-instance-fewest": Mutant(
        "rule: the largest vGPU first decides the number of GPU instances in mixed-size mode",
        "core/planner/vgpu/mixed_instances.py",
        "            return number",
        "            return enough",
        MIXED_INSTANCES,
    ),
    "mixed-instance-mode": Mutant(
        "order: a GPU instance that stays is not set to mixed-size mode",
        "core/planner/vgpu/actions.py",
        "have = {bool(i.mixed_size) for i in stay} |",
        "have = {mode} |",
        MIXED_INSTANCES,
    ),
    "mixed-instance-unknown": Mutant(
        "drift: an unknown mode of a GPU instance counts as off, as if nvidia-smi had shown it",
        "core/planner/vgpu/drift.py",
        "<= {True, msgspec.UNSET}",
        "<= {True}",
        ("tests/unit/core/planner/vgpu/test_instance_modes.py",),
    ),
    "vm-drift": Mutant(
        "drift: a MIG layout that was changed by hand is synced",
        f"{HARVESTER}/mig_configurations.py",
        "(OUT_OF_SYNC if found_differences else SYNCED) if applied",
        "SYNCED if applied",
        LAYOUTS,
    ),
    "vm-touched": Mutant(
        "drift: it is repaired unrequested",
        f"{HARVESTER}/mig_layout.py",
        "    return status.applied_boot != physical_gpu.boot",
        "    return status.applied_boot != physical_gpu.boot or not is_met(found, gpu)",
        LAYOUTS,
    ),
    "vm-foreign": Mutant(
        "drift: a vGPU that another program created is destroyed unrequested",
        f"{HARVESTER}/vgpu_assignment.py",
        "is_tracked_by(physical_gpu, found, vgpu) or found",
        "True or found",
        VGPUS,
    ),
    "vm-slot-uuid": Mutant(
        "boards without SR-IOV: an mdev gets another UUID than its slot's, so that its object does not find it",
        f"{HARVESTER}/vgpu_assignment.py",
        "uuid_before or slot_uuid(physical_gpu.gpu, address)",
        "uuid_before",
        VM_SLOTS,
    ),
    "vm-slot-lost": Mutant(
        "boards without SR-IOV: another program's mdev takes the slot of a vGPU that a reboot destroyed",
        f"{HARVESTER}/vgpu_slots.py",
        "sorted(free, key=lambda address: address in lost)",
        "sorted(free, key=lambda address: address not in lost)",
        VM_SLOTS,
    ),
    "vm-pool-second": Mutant(
        "pools: another GPU is enabled while the first one is being prepared",
        "kubernetes/virtual_machines/pools/pool_round.py",
        "if room.awaited and taken < count:",
        "if False:",
        VM_POOLS,
    ),
    "vm-pool-held": Mutant(
        "pools: a smaller number takes vGPUs that VMs use",
        "kubernetes/virtual_machines/pools/pool_round.py",
        "[device for device in order if self._holder(device) is None][:surplus]",
        "order[:surplus]",
        VM_POOLS,
    ),
    "vm-pool-layout": Mutant(
        "pools: a GPU is kept from MIG mode although a user has just requested its layout",
        "kubernetes/virtual_machines/pools/gpu_room.py",
        "(beside or mig.spec.enabled or _has_instances(mig))",
        "(beside or _has_instances(mig))",
        VM_POOLS,
    ),
    "vm-pool-fresh": Mutant(
        "pools: a vGPU is taken away without reading the VMs, which the watch may not show yet",
        "kubernetes/virtual_machines/controller/pools.py",
        "if any(change.withdraws for change in changes):",
        "if False:",
        VM_POOL_CONTROLLER,
    ),
    "vm-pool-cordoned": Mutant(
        "pools: a cordoned node gets new vGPUs",
        "kubernetes/virtual_machines/pools/pool_round.py",
        "not node.spec.unschedulable else node.name",
        'node.spec.unschedulable else ""',
        VM_POOL_MOVES,
    ),
    "vm-pool-away": Mutant(
        "pools: a kubelet that only registers again costs the vGPUs of a pool with a node selector",
        "kubernetes/virtual_machines/pools/pool_round.py",
        "if here and (node is None or selects(spec, node)):",
        "if here and node is not None and selects(spec, node):",
        VM_POOL_MOVES,
    ),
    "vm-pool-silent": Mutant(
        "pools: an agent that does not answer is waited for without end",
        "kubernetes/virtual_machines/pools/agent_watch.py",
        "if now - since >= ANSWER_S",
        "if False",
        VM_POOL_AGENTS,
    ),
    "vm-pool-unserved": Mutant(
        "pools: a node without an agent of ours is tried until it counts as silent",
        "kubernetes/virtual_machines/pools/pool_view.py",
        "self.foreign = foreign_nodes(snapshot.nodes.values())",
        "self.foreign = frozenset[str]()",
        VM_POOL_MOVES,
    ),
    "vm-pool-slow": Mutant(
        "pools: an agent that answers one object after the other counts as dead",
        "kubernetes/virtual_machines/pools/agent_watch.py",
        "since if known <= waiting else now",
        "since",
        VM_POOL_AGENTS,
    ),
    "vm-pool-seen": Mutant(
        "pools: a request that a dead agent saw is withdrawn, so that its vGPU has no owner",
        "kubernetes/virtual_machines/pools/pool_round.py",
        "if is_unobserved(device) and self._holder(device) is None]",
        "if self._holder(device) is None]",
        VM_POOL_AGENTS,
    ),
    "vm-pool-prepared": Mutant(
        "pools: the numbers that a user prepared in a disabled MigConfiguration are overwritten",
        "kubernetes/virtual_machines/pools/gpu_room.py",
        "return not mig.spec.enabled and any(",
        "return False and any(",
        VM_POOL_LAYOUTS,
    ),
    "vm-pool-mixed": Mutant(
        "pools: a GPU in mixed-size mode is filled as if all its vGPUs had one size",
        f"{HARVESTER}/placements.py",
        "if text is None:",
        "if True:",
        VM_POOL_ROOM,
    ),
    "vm-pool-foreign": Mutant(
        "pools: GPU instances that a user requested are given back",
        "kubernetes/virtual_machines/pools/pool_layouts.py",
        "return bool(recorded) and recorded == _described(layout.spec.profile_spec)",
        "return True",
        VM_POOL_LAYOUTS,
    ),
    "vm-pool-return": Mutant(
        "pools: the last pool goes before its GPU instances were given back",
        "kubernetes/virtual_machines/pools/pool_decision.py",
        "() if returned else ",
        "",
        VM_POOL_LAYOUTS,
    ),
    "vm-pool-lacks": Mutant(
        "pools: GPU instances are destroyed and requested in turn while no driver offers their type",
        "kubernetes/virtual_machines/pools/pool_layouts.py",
        "plan.wanted | plan.taken",
        "plan.taken",
        VM_POOL_LAYOUTS,
    ),
    "vm-adoption": Mutant(
        "adoption: a new VGPUDevice of a function that carries a vGPU requests none, as pcidevices' does",
        f"{HARVESTER}/vgpu_devices.py",
        "adopted = vgpu is not None and has_known_type(physical_gpu, vgpu)",
        "adopted = False",
        VGPUS,
    ),
    "vm-reboot": Mutant(
        "reboot: a MIG layout that it took is not replayed",
        f"{HARVESTER}/mig_layout.py",
        "    return status.applied_boot != physical_gpu.boot",
        "    return False",
        LAYOUTS,
    ),
    "vm-order": Mutant(
        "reboot: GPU instances before virtual functions, which end them",
        "core/planner/vgpu/gpu_plan.py",
        "after = [*transition.enable_functions(), *transition.set_scheduler(), "
        "*transition.set_mixed_size(on=True), *new]",
        "after = [*new, *transition.enable_functions(), *transition.set_scheduler(), "
        "*transition.set_mixed_size(on=True)]",
        LAYOUTS,
    ),
    "vm-uuid": Mutant(
        "reboot: a vGPU comes back under another UUID",
        f"{HARVESTER}/vgpu_assignment.py",
        'return previous if all(v.uuid != previous for v in physical_gpu.live_vgpus.values()) else ""',
        'return ""',
        VGPUS,
    ),
    "vm-definition-values": Mutant(
        "definitions: where the cluster's and ours differ, the repair writes ours",
        f"{HARVESTER}/crd_merge.py",
        "    found = dict(live)\n",
        "    found = {**live, **{key: each for key, each in ours.items() if not isinstance(each, dict | list)}}\n",
        ("tests/laws/property/test_definition_merge.py",),
    ),
    "vm-definition-status": Mutant(
        "definitions: the repair lets the server refuse the status of a newer pcidevices",
        f"{HARVESTER}/crd_merge.py",
        "in_status and key in _LIMITS",
        "not in_status and key in _LIMITS",
        (f"{OBJECTS[0]}/test_crd_merge.py",),
    ),
    "vm-definition-pace": Mutant(
        "definitions: two controllers write over each other without end",
        "kubernetes/virtual_machines/controller/definition_repair.py",
        "self._in_a_row.get(name, 0) + 1 if soon else 0",
        "0",
        (f"{_UNITS}/controller/test_definition_repair.py",),
    ),
    "vm-parameters": Mutant(
        "plugin parameters: a changed request leaves the vGPU as it is",
        f"{HARVESTER}/vgpu_assignment.py",
        "return msgspec.structs.replace(kept, parameters=parameters), None",
        "return kept, None",
        (f"{_UNITS}/harvester/test_vgpu_parameters.py",),
    ),
    "vm-parameters-held": Mutant(
        "webhook: plugin parameters are changed while a VM runs with the vGPU",
        f"{HARVESTER}/admission/vgpu_devices.py",
        "if before != after and new.spec.enabled and (holder",
        "if False and (holder",
        ADMISSION,
    ),
    "vm-time-sliced": Mutant(
        "webhook: the MIG mode changes under an enabled vGPU",
        f"{HARVESTER}/admission/sriov_gpu_devices.py",
        "    return not skips_mig(new) and supports_mig(snapshot.functions.get(name))",
        "    return False",
        ADMISSION,
    ),
    "vm-field-name": Mutant(
        "fields: an annotation of Harvester is written under a name that looks right",
        "kubernetes/kinds/harvester_names.py",
        'RESOURCE_ANNOTATION = "pcidevice.harvesterhci.io',
        'RESOURCE_ANNOTATION = "pcidevices.harvesterhci.io',
        (f"{_UNITS}/harvester/test_fields.py",),
    ),
    "vm-isolation": Mutant(
        "isolation: all GPUs of a node are planned together, so that one bad request stops them all",
        "kubernetes/virtual_machines/agent/reconciler.py",
        "make(inventory, Desired((intent.desired,)))",
        "make(inventory, Desired(tuple(i.desired for i in intents(view, objects) if i.desired is not None)))",
        ("tests/system/kubernetes/test_devices_disturbed.py",),
    ),
    "vm-own-node": Mutant(
        "isolation: objects of other nodes' GPUs are taken for ours that are gone",
        f"{HARVESTER}/vgpu_devices.py",
        "if found.spec.node_name == view.node and name not in present and not expected:",
        "if name not in present and not expected:",
        OBJECTS,
    ),
    "vm-given": Mutant(
        "in use: what kubelet gave to a pod between look and act is destroyed",
        "kubernetes/virtual_machines/agent/reconciler.py",
        "return bool(self._kubelet_error) or bool(uses_of_devices(ending, uses, inventory))",
        "return False",
        ("tests/unit/kubernetes/virtual_machines/agent/test_work.py",),
    ),
    "vm-blind": Mutant(
        "in use: the allocation annotation alone says who has a device, as in pcidevices",
        f"{HARVESTER}/admission/device_users.py",
        "return _possible_holder(name, resource, self._competition(resource)) if resource else None",
        "return None",
        ADMISSION,
    ),
    "vm-claimed": Mutant(
        "in use: a vGPU that a VM has by a ResourceClaim may be disabled",
        f"{HARVESTER}/admission/device_users.py",
        "if (claimed := self.describe_claim(name)) is not None:",
        "if (claimed := None) is not None:",
        (f"{_UNITS}/harvester/admission/test_claimed_devices.py",),
    ),
    "vm-claimed-late": Mutant(
        "in use: ResourceClaims are not read again before a pool takes a vGPU",
        "kubernetes/virtual_machines/controller/informers.py",
        "claims = () if self.resource_claims.absent else await _list_all(api, VmClaim)",
        "claims = self.resource_claims.items",
        VM_POOL_CONTROLLER,
    ),
    "vm-claimed-whole": Mutant(
        "pools: a GPU that a VM has by a ResourceClaim gets virtual functions",
        "kubernetes/virtual_machines/pools/gpu_room.py",
        'view.users.describe_claim(gpu) or ""',
        '""',
        VM_POOLS,
    ),
    "vm-seven": Mutant(
        "webhook: any seven instances are a layout, as in pcidevices",
        f"{HARVESTER}/admission/mig_layout.py",
        "if next(pack.arrangements(table, counts), None) is None:",
        "if sum(counts.values()) > 7:",
        ADMISSION,
    ),
    "vm-meant": Mutant(
        "webhook: a type in another spelling is refused without the one that was meant",
        f"{HARVESTER}/admission/vgpu_devices.py",
        "if typed == code or _spelling(typed) == _spelling(name)",
        "if typed == name",
        ADMISSION,
    ),
    "vm-ramfb": Mutant(
        "webhook: every vGPU of a machine gets ramFB",
        f"{KUBEVIRT}/admission/mutation.py",
        '{"enabled": bool(after.ramfb)}',
        '{"enabled": True}',
        (f"{_UNITS}/kubevirt/admission/test_machines.py",),
    ),
    "vm-twice": Mutant(
        "over-commit: a machine that was admitted a moment ago does not count",
        f"{KUBEVIRT}/capacity.py",
        "for each in observation.reserved:",
        "for each in ():",
        CAPACITY,
    ),
    "vm-one-node": Mutant(
        "over-commit: the devices that a VM requests are added up over nodes",
        f"{KUBEVIRT}/fit.py",
        "if any(amounts[resource] < count for resource, count in counts.items()):",
        "if not amounts:",
        CAPACITY,
    ),
    "vm-permitted": Mutant(
        "KubeVirt: a resource is permitted twice",
        f"{KUBEVIRT}/permitted_devices.py",
        "if entry in seen or not _is_current(entry, want):",
        "if not _is_current(entry, want):",
        CAPACITY,
    ),
    "vm-registered": Mutant(
        "webhooks: they are registered before anything answers",
        "kubernetes/virtual_machines/webhook/registration.py",
        "if not found.webhooks and not await _service_is_ready(api):",
        "if False:",
        ("tests/system/kubernetes/test_webhooks.py",),
    ),
    "vm-nic": Mutant(
        "webhook: a network card's claim is judged as a GPU's",
        f"{HARVESTER}/admission/pci_device_claims.py",
        "return listed or any(",
        "return True or any(",
        ADMISSION,
    ),
    "vm-fabric": Mutant(
        "NVSwitch: a vGPU that is a whole GPU is made without a fabric partition",
        "core/planner/vgpu/passthrough.py",
        "each.max == 1 and not each.mig_backed",
        "each.max == 0 and not each.mig_backed",
        ("tests/unit/core/planner/vgpu/test_fabric.py",),
    ),
    "vm-fabric-several": Mutant(
        "NVSwitch: several GPUs are passed through at once",
        "core/planner/vgpu/passthrough.py",
        "if len(gpus) < 2 or not new:",
        "if len(gpus) < 9 or not new:",
        ("tests/unit/core/planner/vgpu/test_fabric.py",),
    ),
    "parameters-match": Mutant(
        "plugin parameters: a vGPU meets a request whatever its parameters are",
        "core/planner/vgpu/matching.py",
        'return f"type {type_id}" if parameters is None else f"type {type_id} {parameters}"',
        'return f"type {type_id}"',
        PARAMETERS,
    ),
    "parameters-type": Mutant(
        "plugin parameters: a vGPU of another type inherits those of the former one on its function",
        "core/planner/vgpu/actions.py",
        'present.get((new.uuid, new.item.type.id or 0), "")',
        'next((p for (uuid, _), p in present.items() if uuid == new.uuid), "")',
        PARAMETERS,
    ),
    "parameters-cuda": Mutant(
        "plugin parameters: those for CUDA are written for types without CUDA",
        "core/planner/vgpu/rules.py",
        "if not names or vgpu_type.series in CUDA_SERIES:",
        "if not names or vgpu_type.series:",
        PARAMETERS,
    ),
    "parameters-place": Mutant(
        "renewal: vGPUs that are created again move to the first free functions",
        "core/planner/vgpu/gpu_plan.py",
        "recorded = (*(h.vgpu for h in to_destroy), *gpu.virtual.recorded_vgpus)",
        "recorded = gpu.virtual.recorded_vgpus",
        PARAMETERS,
    ),
    "parameters-back": Mutant(
        "plugin parameters: the way back of a change forgets them",
        "core/planner/restore_point.py",
        "parameters=vgpu.parameters)",
        "parameters=None)",
        PARAMETERS,
    ),
    "parameters-boot": Mutant(
        "plugin parameters: a boot forgets those that the last request left as they were",
        "core/config/boot_record.py",
        "parameters=found.parameters or request.parameters)",
        "parameters=request.parameters)",
        ("tests/unit/core/config/test_record.py",),
    ),
    "scheduler-clears": Mutant(
        "scheduler: it is set while idle vGPUs exist",
        "core/planner/vgpu/actions.py",
        "return self.wipes or self.mixed_size or self.scheduler",
        "return self.wipes or self.mixed_size",
        SCHEDULER,
    ),
    "scheduler-lost": Mutant(
        "scheduler: it is thought to outlive a change of virtual functions",
        "core/planner/vgpu/scheduler.py",
        "remains = DEFAULT if wiped else task.virtual.scheduler",
        "remains = task.virtual.scheduler or DEFAULT",
        SCHEDULER,
    ),
    "scheduler-mixed": Mutant(
        "scheduler: fixed share is set in mixed-size mode",
        "core/planner/vgpu/rules.py",
        "if policy == FIXED and mixed:",
        "if policy == FIXED and not policy:",
        SCHEDULER,
    ),
    "scheduler-order": Mutant(
        "scheduler: mixed-size mode is enabled before fixed share ends",
        "core/planner/vgpu/gpu_plan.py",
        "*transition.set_scheduler(), *transition.set_mixed_size(on=True)",
        "*transition.set_mixed_size(on=True), *transition.set_scheduler()",
        SCHEDULER,
    ),
    "scheduler-back": Mutant(
        "scheduler: the way back of a change forgets it",
        "core/planner/restore_point.py",
        "scheduler=scheduler_of(gpu) or None",
        "scheduler=None",
        SCHEDULER,
    ),
    "scheduler-inside-held": Mutant(
        "scheduler: a VM in one GPU instance holds up the scheduler of the others",
        "core/planner/vgpu/mig_backed_search.py",
        "stays = (set(ids.values()) & as_wanted) - self.switched",
        "stays = set() if self.switched else set(ids.values()) & as_wanted",
        INSTANCE_SCHEDULER,
    ),
    "scheduler-inside-later": Mutant(
        "scheduler: one of a GPU instance that a VM uses is not set once the VM ended",
        "core/planner/vgpu/instance_scheduler.py",
        "held = {v.gpu_instance for v in gpu.vgpus if v.held and desired_gpu.spares_held}",
        "held = {v.gpu_instance for v in gpu.vgpus if desired_gpu.spares_held}",
        INSTANCE_SCHEDULER,
    ),
    "scheduler-inside-new": Mutant(
        "scheduler: GPU instances that are created keep the driver's default",
        "core/planner/vgpu/instance_scheduler.py",
        "made = any(isinstance(a, Create) and a.profile_id in shared for a in new)",
        "made = False",
        INSTANCE_SCHEDULER,
    ),
    "scheduler-inside-order": Mutant(
        "scheduler: mixed-size mode of a GPU instance is enabled before fixed share ends",
        "core/planner/vgpu/actions.py",
        "return scheduler + mixed if mode else mixed + scheduler",
        "return mixed + scheduler if mode else scheduler + mixed",
        INSTANCE_SCHEDULER,
    ),
    "scheduler-inside-unseen": Mutant(
        "scheduler: one of a GPU instance is requested where it cannot be seen",
        "core/planner/vgpu/gpu_mode.py",
        "refusal = rules.unseen_scheduler(unseen_instance(task.gpu, shared))",
        "refusal = None",
        INSTANCE_SCHEDULER,
    ),
    "scheduler-strict": Mutant(
        "scheduler: a time slice is requested of drivers that have none",
        "core/model/vgpu_scheduler.py",
        "numbers(driver) < (ALWAYS_STRICT,)",
        "numbers(driver) < (ALWAYS_STRICT + 100,)",
        SCHEDULER,
    ),
    "scheduler-boot": Mutant(
        "scheduler: a boot restores one that the GPU no longer had",
        "core/config/boot_record.py",
        "previous.scheduler is not None and meets_scheduler(scheduler_of(gpu), previous.scheduler)",
        "previous.scheduler is not None",
        ("tests/unit/core/config/test_record.py",),
    ),
    "scheduler-object": Mutant(
        "scheduler: an annotation that is impossible now holds up the GPU's other objects",
        f"{HARVESTER}/gpu_decision.py",
        "return (base if _first_blocker(physical_gpu, partial) else partial), why",
        "return wanted, None",
        (f"{_UNITS}/harvester/test_scheduler_objects.py",),
    ),
    "vm-theirs": Mutant(
        "KubeVirt: an entry of what pcidevices serves on its nodes is judged as ours",
        f"{KUBEVIRT}/permitted_devices.py",
        " and entry.resource not in want.foreign:",
        ":",
        CAPACITY,
    ),
    "vm-beside": Mutant(
        "Harvester: its add-on leaves out only the nodes that we do not serve",
        "kubernetes/manifests/pcidevices_addon.py",
        '"operator": "DoesNotExist"',
        '"operator": "Exists"',
        ADDON,
    ),
    "vm-addon-namespace": Mutant(
        "Harvester: the add-on's values are in our namespace, where Helm does not look",
        "kubernetes/manifests/pcidevices_addon.py",
        'metadata(ADDON, "devices", HARVESTER)',
        'metadata(ADDON, "devices", "gpu-operator")',
        ADDON,
    ),
    "vm-claim-owner": Mutant(
        "mixed cluster: a vGPU's claim is deleted while its VGPUDevice owns it, which pcidevices refuses",
        f"{HARVESTER}/pci_device_claims.py",
        "if len(remaining) != len(meta.owner_references):",
        "if not meta.owner_references:",
        VGPUS,
    ),
    "vm-move": Mutant(
        "move: the claim that pcidevices made for a living vGPU is deleted",
        f"{HARVESTER}/pci_device_claims.py",
        "if not unknown and not exists and vgpu_resource_for",
        "if exists or not unknown and vgpu_resource_for",
        (f"{_UNITS}/harvester/test_both_controllers.py",),
    ),
    "vm-mig-status": Mutant(
        "Harvester's page: a new MigConfiguration has no status word, so that it cannot be edited",
        "kubernetes/kinds/harvester.py",
        'name="status", default=msgspec.UNSET',
        'name="status", default=""',
        (f"{_UNITS}/harvester/test_samples.py",),
    ),
    "vm-withdrawn": Mutant(
        "device plugin: a vGPU that is being disabled is still given to machines",
        f"{HARVESTER}/device_offer.py",
        "or not _is_settled(vgpu_object) ",
        "",
        OBJECTS,
    ),
    "usb-unplugged": Mutant(
        "USB: the object of a claimed device is deleted with its claim when the device is unplugged, as in pcidevices",
        f"{PERIPHERALS}/usb_devices.py",
        "        if name not in objects.usb_claims:\n            yield found",
        "        yield found",
        PERIPHERAL_OBJECTS,
    ),
    "usb-gone-healthy": Mutant(
        "USB: an unplugged device is still given to machines",
        f"{PERIPHERALS}/usb_offer.py",
        "healthy=device is not None",
        "healthy=True",
        PERIPHERAL_OBJECTS,
    ),
    "usb-controller": Mutant(
        "USB: a device is passed through although its controller is claimed as a whole",
        f"{PERIPHERALS}/usb_devices.py",
        "if controller and claim.spec.address == controller and",
        "if not controller and claim.spec.address == controller and",
        PERIPHERAL_OBJECTS,
    ),
    "usb-user": Mutant(
        "USB: a claim is in use only by machines whose entry has the name of the object, as in pcidevices",
        f"{HARVESTER}/admission/device_users.py",
        'in requested - {""}}',
        "in ()}",
        (f"{_UNITS}/harvester/admission/test_peripherals.py",),
    ),
    "port-claimed": Mutant(
        "network port: its functions are removed although one is claimed",
        f"{PERIPHERALS}/network_devices.py",
        "    claims = _claims_on(view, objects, port)\n",
        "    claims: list[str] = []\n",
        PERIPHERAL_OBJECTS,
    ),
    "port-adopted": Mutant(
        "network port: a new object requests none of the functions that exist, as pcidevices' does",
        f"{PERIPHERALS}/network_devices.py",
        "num_vfs=len(addresses))",
        "num_vfs=0)",
        PERIPHERAL_OBJECTS,
    ),
    "port-traffic": Mutant(
        "network port: its functions change while it carries the host's traffic",
        f"{PERIPHERALS}/network_devices.py",
        "    if port.traffic:\n        text",
        "    if False:\n        text",
        PERIPHERAL_OBJECTS,
    ),
    "port-refused": Mutant(
        "network port: a number that the driver refuses costs the functions that existed",
        "hardware/kernel/network_ports.py",
        "        if sriov.count(files, address) != before:\n",
        "        if not before:\n",
        ("tests/unit/hardware/kernel/test_network_ports.py",),
    ),
    "apply-unread": Mutant(
        "apply: success is reported without a fresh read",
        "core/engine/apply.py",
        "return _disagreement(work.rest, after) or after",
        "return after",
        SAFEGUARDS,
    ),
    "apply-others": Mutant(
        "apply: the other GPUs go on after an error",
        "core/engine/executor.py",
        "run.stopping = not run.undoing",
        "pass",
        SAFEGUARDS,
    ),
    "apply-identity": Mutant(
        "apply: an instance is destroyed though it is another one than planned",
        "core/engine/executor.py",
        "(instance.profile_id, instance.placement) != (action.profile_id, action.placement)",
        "False",
        SAFEGUARDS,
    ),
    "undo-plan": Mutant(
        "rollback: it is planned with the right to end holders",
        "core/engine/recovery.py",
        "(pci,)), Policy())",
        '(pci,)), Policy("force"))',
        SAFEGUARDS,
    ),
    "undo-act": Mutant(
        "rollback: it ends holders",
        "core/engine/run.py",
        "Run(self.context, Policy(),",
        'Run(self.context, Policy("force"),',
        SAFEGUARDS,
    ),
    "saved-plan": Mutant(
        "saved plan: its actions are carried out as they stand in the file",
        "core/engine/apply.py",
        "            check(plan, now)\n",
        "            pass\n",
        ("tests/unit/core/planner/test_saved_plan.py",),
    ),
    "journal-eio": Mutant(
        "journal: a record counts as written though its fsync failed",
        "hardware/state/journal.py",
        "self._lost.append((self._synced, covered, failure))",
        "del failure",
        ("tests/contract/test_journal.py",),
    ),
    "journal-rotation": Mutant(
        "journal: a shortened file gets the name before it is on disk",
        "hardware/state/journal.py",
        'atomic_file.replace(self.path, b"".join(line.text + b"\\n" for line in remaining))',
        'atomic_file.replace(self.path, b"".join(line.text + b"\\n" for line in remaining), durable=False)',
        POWER,
    ),
    "journal-name": Mutant(
        "journal: the name of a new file is not synced",
        "hardware/state/journal.py",
        "                atomic_file.sync(folder)",
        "                pass",
        POWER,
    ),
    "journal-intent": Mutant(
        "journal: a driver call may come before its record is on disk",
        "core/engine/run.py",
        'JournalEntry("intent", self.run_id, gpu=pci, step=step), durable=True',
        'JournalEntry("intent", self.run_id, gpu=pci, step=step), durable=False',
        POWER,
    ),
    "state-synced": Mutant(
        "state file: new content gets the name before it is on disk",
        "foundation/atomic_file.py",
        "            if durable:\n                os.fsync(handle)",
        "            if not durable:\n                os.fsync(handle)",
        POWER,
    ),
    "state-name": Mutant(
        "state file: its new name is not synced",
        "foundation/atomic_file.py",
        '        sync(folder or ".")',
        "        pass",
        POWER,
    ),
    "state-folder": Mutant(
        "state file: the name of a new folder is not synced",
        "foundation/atomic_file.py",
        '            sync(os.path.dirname(folder) or ".")',
        "            pass",
        POWER,
    ),
    "state-order": Mutant(
        "state file: new content gets the name, and is on disk only then",
        "foundation/atomic_file.py",
        "            if durable:\n                os.fsync(handle)",
        '            os.link(fresh, f"{fresh}2")\n            put(f"{fresh}2", path)\n            os.fsync(handle)',
        POWER,
    ),
    "fingerprint-compute": Mutant(
        "fingerprint: compute instances are left out",
        "core/model/inventory.py",
        "[[c.id, c.profile_id, c.placement] for c in gpu_instance.compute_instances]",
        "[]",
        FINGERPRINT,
    ),
    "fingerprint-driver": Mutant(
        "fingerprint: the driver's version is left out",
        "core/model/inventory.py",
        "facts = [self.driver] + [",
        'facts = [""] + [',
        FINGERPRINT,
    ),
    "fingerprint-claim": Mutant(
        "fingerprint: the ownership token of a vGPU is left out",
        "core/model/inventory.py",
        "v.placement, v.ownership_token]",
        "v.placement]",
        FINGERPRINT,
    ),
    "fingerprint-pending": Mutant(
        "fingerprint: the pending MIG mode is left out",
        "core/model/inventory.py",
        "g.mig.current, g.mig.pending,",
        "g.mig.current,",
        FINGERPRINT,
    ),
    "page-token": Mutant(
        "page: a token is compared by the first byte of its digest",
        "dashboard/security/token_authenticator.py",
        "hmac.compare_digest(digest(token), self._token)",
        "hmac.compare_digest(digest(token)[:1], self._token[:1])",
        ("tests/unit/dashboard/test_tokens.py",),
    ),
    "claim-any": Mutant(
        "in use: a claimed device that no name tells holds nothing",
        "kubernetes/node_agent/pod_holders.py",
        "claimed_device.device_uuids(use.claim, inventory) or all_gpus",
        "claimed_device.device_uuids(use.claim, inventory)",
        ("tests/unit/kubernetes/node_agent/test_pod_holders.py",),
    ),
    "claim-late": Mutant(
        "in use: who has a whole GPU has none of its MIG devices between look and act",
        "kubernetes/node_agent/pod_holders.py",
        "not uuids.isdisjoint([*own, *(part for device in own for part in parts.get(device, ()))])",
        "not uuids.isdisjoint(own)",
        ("tests/unit/kubernetes/node_agent/test_pod_holders.py",),
    ),
    "roles-code": Mutant(
        "agent: the exit code of a role that failed is lost beside another role",
        "kubernetes/node_agent/agent_run.py",
        "max(loop.code for loop in self._loops)",
        "min(loop.code for loop in self._loops)",
        ("tests/unit/kubernetes/node_agent/test_agent_run.py",),
    ),
    "roles-view": Mutant(
        "agent: a role sees the GPUs that the role before it asked for",
        "kubernetes/node_agent/gpu_worker.py",
        "        self._connection.show_all_gpus(all_gpus)\n",
        "",
        ("tests/unit/kubernetes/node_agent/test_hardware.py",),
    ),
    "roles-undone": Mutant(
        "agent: what another client undoes on the node right after a write is overlooked",
        "kubernetes/node_agent/own_node.py",
        "            listener.settle(self.node)\n",
        "            pass\n",
        ("tests/unit/kubernetes/node_agent/test_own_node.py",),
    ),
    "label-agent-asks-kubelet": Mutant(
        "a change that ends no device waits for a kubelet that does not answer",
        "kubernetes/label_agent/agent/apply_step.py",
        "if not ending or self._context",
        "if self._context",
        ("tests/unit/kubernetes/label_agent/agent/test_apply_step.py",),
    ),
    "label-agent-left-to-another": Mutant(
        "a wait for operands goes on after the label was left to another manager",
        "kubernetes/label_agent/agent/loop.py",
        "return not settings.manage",
        "return False",
        ("tests/unit/kubernetes/label_agent/agent/test_loop.py",),
    ),
    "label-agent-mig-settings": Mutant(
        "the agent of vGPUs takes what a ClusterPolicy says about the MIG manager",
        "kubernetes/label_agent/agent/settings.py",
        "_OF_MIG_MANAGER if managed.for_vms",
        "_OF_MIG_MANAGER if False",
        ("tests/unit/kubernetes/label_agent/agent/test_settings.py",),
    ),
    "kept-vgpus": Mutant(
        "GPU instances that stay under destroyed vGPUs are reported as vGPUs",
        "kubernetes/node_agent/messages.py",
        "vgpus = min(requested - sum(isinstance(a, CreateVgpu) for a in plan.actions), plan.unchanged)",
        "vgpus = plan.unchanged",
        ("tests/unit/kubernetes/node_agent/test_messages.py",),
    ),
    "driver-beside-agent": Mutant(
        "a command in the agent's container looks for the driver in its own root only",
        "node/connect.py",
        "os.uname().nodename, driver_root()",
        'os.uname().nodename, "/"',
        ("tests/unit/node/test_driver_root.py",),
    ),
    "roles-access": Mutant(
        "agent: while the driver's pod is not ready, another role opens the driver",
        "kubernetes/virtual_machines/agent/host_gpus.py",
        "            if location.error:\n                raise NoDriverError(location.error)\n",
        "",
        ("tests/unit/kubernetes/virtual_machines/agent/test_host_gpus.py",),
    ),
    "agent-ready": Mutant(
        "label agent: a GPU whose holders have left is given to new pods while others are waited for",
        "kubernetes/label_agent/agent/affected_devices.py",
        "own if released or evicting",
        "own if evicting",
        ("tests/unit/kubernetes/label_agent/agent/test_pod_waits.py",),
    ),
    "vgpu-label-pods": Mutant(
        "vGPU label: a vGPU that kubelet gave to a VM that has not started counts as idle",
        "kubernetes/label_agent/agent/observer.py",
        "plan = self._plan(held_by_pods(inventory, uses), request.desired, policy)",
        "plan = self._plan(inventory, request.desired, policy)",
        ("tests/unit/kubernetes/label_agent/agent/test_vgpu_observer.py",),
    ),
    "vgpu-label-word": Mutant(
        "vGPU label: its operands are paused with the word of the MIG manager",
        "kubernetes/gpu/gpu_operands.py",
        "labels[operand.label] = operand.paused",
        "labels[operand.label] = names.PAUSED",
        ("tests/unit/kubernetes/gpu/test_operands.py",),
    ),
    "vgpu-label-default": Mutant(
        "vGPU label: a node without it gets no default config",
        "kubernetes/gpu/managed_label.py",
        "return requested or settings.vgpu_default_config or requested if self.for_vms else requested",
        "return requested",
        ("tests/unit/kubernetes/gpu/test_managed_label.py",),
    ),
    "vgpu-label-two-managers": Mutant(
        "vGPU label: the agent changes vGPUs although the operator runs its own manager",
        "kubernetes/label_agent/controller/cluster_policy_settings.py",
        'values["vgpu_manage"] = False',
        'values["vgpu_manage"] = True',
        ("tests/unit/kubernetes/label_agent/controller/test_settings_from.py",),
    ),
    "agent-idle": Mutant(
        "label agent: while a pod is waited for, all that is to go is withdrawn on all GPUs",
        "kubernetes/label_agent/agent/affected_devices.py",
        "found |= own if released or evicting else held | before",
        "found |= own",
        ("tests/unit/kubernetes/label_agent/agent/test_pod_waits.py",),
    ),
    "agent-settings": Mutant(
        "label agent: settings that cannot be understood stop a node that knew better ones before its restart",
        "kubernetes/label_agent/agent/last_settings.py",
        "return self._file.load().texts if",
        "return {} if",
        ("tests/unit/kubernetes/label_agent/agent/test_settings.py",),
    ),
    "hint-held": Mutant(
        "hints: a node whose instances are held is proposed to be divided",
        "kubernetes/label_agent/controller/hints.py",
        "for node, profile in mixed if node.name not in fleet.held]",
        "for node, profile in mixed]",
        ("tests/unit/kubernetes/label_agent/controller/test_waiting.py",),
    ),
    "hint-others": Mutant(
        "hints: named configs for other GPUs than the node's are offered",
        "kubernetes/gpu/config_label.py",
        "return bool(desired.gpus) and not desired.failures",
        "return True",
        ("tests/unit/kubernetes/gpu/test_config_label.py",),
    ),
    "agent-blocked": Mutant(
        "label agent: a plan that is blocked by more than holders waits for the holders",
        "kubernetes/node_agent/pod_holders.py",
        'plan.blocked and all(b.rule == "HELD"',
        'plan.blocked and any(b.rule == "HELD"',
        ("tests/unit/kubernetes/label_agent/agent/test_decide.py",),
    ),
    "binding": Mutant(
        "session: what a decorator wraps in a copy of NVML's binding reads the library of the first session",
        "hardware/nvml/binding.py",
        "_with_globals(v, names) if isinstance(v, FunctionType) else v)",
        "v)",
        BINDING,
    ),
    "binding-cache": Mutant(
        "session: a session that begins while another is open makes a copy of NVML's binding, and the process keeps it",
        "hardware/nvml/binding.py",
        "if each.inode == inode:",
        "if each.inode == -inode:",
        BINDING,
    ),
    "soak-pages": Mutant(
        "metrics server and page: they keep a copy of NVML's binding for each connection",
        "hardware/nvml/binding.py",
        "bindings = _bindings.get(real, [])",
        "bindings: list[NvmlBinding] = []",
        HOST_PAGES,
    ),
    "soak-agent": Mutant(
        "label agent: it keeps what it saw at each look",
        "kubernetes/label_agent/agent/loop.py",
        "observation = self.last_observation = await self.observer.observe(self.memory)",
        "observation = self.last_observation = await self.observer.observe(self.memory); "
        "self.__dict__.setdefault('all', []).append(observation)",
        AGENTS,
    ),
    "any-answer": Mutant(
        "command line: any answer counts as yes",
        "cli/framework/confirmation.py",
        'return answer.strip().lower() in (b"y", b"yes")',
        "return True",
        ("tests/system/cli/test_confirmation.py",),
    ),
    "edited-file": Mutant(
        "--out: a file that was edited since is still Aliquot's own",
        "cli/framework/owned_files.py",
        'if first != f"{_MARK}{_checksum(rest)}":',
        "if not rest:",
        ("tests/system/cli/test_documents.py",),
    ),
    "proposed-loss": Mutant(
        "next step: what the request keeps may go in what is proposed instead",
        "core/planner/blockers.py",
        "if instance.held or left[instance.profile_id] > 0:",
        "if instance.held:",
        ("tests/laws/property/test_laws.py",),
    ),
    "unasked": Mutant(
        "command line: a user at a terminal is not asked",
        "cli/framework/confirmation.py",
        "if args.yes or not is_interactive():",
        "if args.yes or is_interactive():",
        ("tests/system/cli/test_confirmation.py",),
    ),
    "json-mark": Mutant(
        "--out: JSON with our mark is Aliquot's own, edited or not",
        "cli/framework/owned_files.py",
        "plain.pop(JSON_MARK) != _member(plain)",
        "not plain.pop(JSON_MARK)",
        ("tests/system/cli/test_documents.py",),
    ),
    "unseen": Mutant(
        "command line: an answer is waited for though the question cannot be shown",
        "cli/framework/confirmation.py",
        "if not _write_terminal(",
        "if None is _write_terminal(",
        ("tests/system/cli/test_confirmation.py",),
    ),
    "slurm-jobs": Mutant(
        "slurm apply: a job that came since the last look is not looked for, whatever Slurm says of the node",
        "slurm/node/waits.py",
        "return not now.last_busy or _use(last) != _use(now)",
        "return not now.last_busy",
        SLURM,
    ),
    "slurm-unread": Mutant(
        "slurm: a job whose record cannot be read is taken for one that is gone",
        "slurm/client/command_client.py",
        "if not _FORGOTTEN.search(output):",
        "if False:",
        ("tests/unit/slurm/client/test_port_hostile.py",),
    ),
    "slurm-shown": Mutant(
        "slurm apply: what is done need not be what a person was shown",
        "cli/slurm/apply.py",
        "confirm(shown_preview, preview(change, context))",
        "preview(change, context)",
        ("tests/system/cli/test_slurm_question.py",),
    ),
    "cdi-resting": Mutant(
        "CDI: a resting file of another program is deleted",
        "cdi/spec_files.py",
        'if _is_ours(_text(path + SUSPENDED_SUFFIX) or ""):',
        "if True:",
        ("tests/unit/cdi/test_cdi_write.py",),
    ),
    "slurm-answers": Mutant(
        "slurm apply: a node is resumed though its slurmd does not answer",
        "slurm/node/step_executor.py",
        "if waiting.resume_node(record, context) or not record.undoing:",
        "if waiting.resume_node(record, context) or True:",
        SLURM,
    ),
    "slurm-stopped": Mutant(
        "slurm apply: a slurmd that its stop command leaves running is taken for stopped",
        "slurm/node/slurmd.py",
        "while pid := running_slurmd(self._settings):",
        "while pid := 0:",
        ("tests/unit/slurm/node/test_slurmd_commands.py",),
    ),
    "slurm-undo-keys": Mutant(
        "slurm apply: an undo registers a dynamic node with the keys that Slurm refused",
        "slurm/node/target.py",
        "keys = previous if record.undoing else record.node_conf or previous",
        "keys = record.node_conf or previous",
        ("tests/unit/slurm/node/test_apply_node_conf.py",),
    ),
    "slurm-administrators": Mutant(
        "slurm: a node that offers all GPUs of its host does not fence the administrators' capabilities",
        "slurm/files/fence.py",
        "if has_instances(every) else []",
        "if has_instances(every) and whole else []",
        ("tests/unit/slurm/files/test_fence.py",),
    ),
    "slurm-types-free": Mutant(
        "slurm types: devices of a node where no job can start count as free",
        "slurm/types/offers.py",
        "counts - used if starts else Counter()",
        "counts - used",
        ("tests/unit/slurm/types/test_offers.py",),
    ),
    "slurm-types-filler": Mutant(
        "slurm types: the filler of a slot board is offered as a GPU",
        "slurm/types/offers.py",
        " and g.type != FILLER)",
        ")",
        ("tests/unit/slurm/types/test_offers.py",),
    ),
    "slots-interrupted": Mutant(
        "slurm slots: after an interruption, the slots that jobs had before it are believed",
        "slurm/node/next_step.py",
        'replace(record, phase="gate") if again else record',
        "record",
        SLOTS,
    ),
    "slots-gate": Mutant(
        "slurm slots: a job that takes a slot just before the gate is closed is not looked for",
        "slurm/node/slot_steps.py",
        "    used = used_slots(record.name, context)\n    inventory",
        "    used = record.used_slots\n    inventory",
        SLOTS,
    ),
    "slots-gate-ends": Mutant(
        "slurm slots: the gate may end by itself while slots change",
        "slurm/node/slot_gate.py",
        "    context.slurm.extend_reservation(name(node))\n",
        "",
        SLOTS,
    ),
    "slots-gate-deleted": Mutant(
        "slurm slots: a gate that someone deleted during a change is not noticed",
        "slurm/node/next_step.py",
        "return phase if phase not in QUIET or is_gated() else",
        "return phase if True else",
        SLOTS,
    ),
    "slots-maintenance": Mutant(
        "slurm slots: a maintenance that begins during the change lets its jobs in",
        "slurm/node/slot_gate.py",
        "each.start > now + MINUTES * 60 + LONGEST_S or",
        "each.start > now or",
        SLOTS,
    ),
    "slots-restart": Mutant(
        "slurm slots: jobs start on other nodes before a slurmctld that restarted knows their devices",
        "slurm/node/restart_gate.py",
        "        if not unknown:\n",
        "        if True:\n",
        RESTART,
    ),
    "slots-restart-invalid": Mutant(
        "slurm slots: slurmctld remembers nodes that are INVALID, and ends their jobs",
        "slurm/node/restart_gate.py",
        "    if any(each.invalid for each in nodes):\n",
        "    if not nodes:\n",
        RESTART,
    ),
    "slots-restart-ends": Mutant(
        "slurm slots: the reservation of other nodes may end before slurmctld has restarted",
        "slurm/node/restart_gate.py",
        "MINUTES = 10\n",
        "MINUTES = 5\n",
        RESTART,
    ),
    "slots-counted": Mutant(
        "slurm slots: a slot that the node counts, and no job names, is free",
        "slurm/node/slot_use.py",
        'for gres in node.gres_used if gres.name == "gpu" and gres.count for slot in gres.index',
        'for gres in () if gres.name == "gpu" and gres.count for slot in gres.index',
        SLOTS,
    ),
    "slots-unnamed": Mutant(
        "slurm slots: a job whose slots Slurm does not name has none",
        "slurm/node/slot_use.py",
        "        if any(len(gres.index) != gres.count for gres in _gpus(node.name, job)):\n",
        "        if False:\n",
        SLOTS,
    ),
    "slots-missing": Mutant(
        "slurm slots: a GPU that is gone takes its slots with it",
        "slurm/node/slot_preparation.py",
        "and same and len(record.expected.lines) < len(before.lines)",
        "and False",
        SLOTS,
    ),
    "slots-proof": Mutant(
        "slurm slots: the files of a running job may change if its type stays",
        "slurm/files/slot_proof.py",
        "elif before.devices[index] != after.devices[index]:",
        "elif before.devices[index][0] != after.devices[index][0]:",
        ("tests/unit/slurm/files/test_slot_proof.py",),
    ),
    "slots-closed": Mutant(
        "slurm slots: jobs can open capabilities of instances that are created later",
        "slurm/files/slot_board.py",
        "last = replace(last, files=(*last.files, *_unused(inventory, records, chosen.dev)))",
        "last = replace(last, files=last.files)",
        ("tests/unit/slurm/files/test_slot_board.py",),
    ),
    "slurm-array-limit": Mutant(
        "slurm controller: an array's tasks count as demand beyond the number that may run at a time",
        "slurm/controller/job_demand.py",
        "max(0, min(job.array_tasks, headroom.get(job.array_job, job.array_tasks)))",
        "job.array_tasks",
        ("tests/unit/slurm/controller/test_slurm_demands.py",),
    ),
    "slurm-burst": Mutant(
        "slurm controller: the first job of a burst is decided alone",
        "slurm/controller/loop.py",
        "and self._settle():",
        "and False:",
        ("tests/unit/slurm/controller/test_slurm_loop.py",),
    ),
    "slurm-unannounced": Mutant(
        "slurm controller: it stops asking for new jobs although no hook announces them",
        "slurm/controller/poll_hint.py",
        'float("inf") if self._announced else',
        'float("inf") if True else',
        ("tests/unit/slurm/controller/test_slurm_glances.py",),
    ),
    "slurm-two-controllers": Mutant(
        "slurm controller: it acts although a controller on another host renews its claim",
        "slurm/client/cluster_claim.py",
        "if found is not None and found.owner != self._owner and self._lives(found, now):",
        "if False:",
        ("tests/unit/slurm/client/test_cluster_claim.py",),
    ),
    "slurm-boards-used": Mutant(
        "slurm controller: the slots of jobs on a board are planned as if they were idle",
        "slurm/controller/slot_boards.py",
        "held=bool(starts & taken)",
        "held=False",
        ("tests/unit/slurm/controller/test_slurm_boards.py",),
    ),
    "slurm-boards-pads": Mutant(
        "slurm controller: a board changes although a job has the capabilities of future instances",
        "slurm/controller/slot_boards.py",
        "elif _total(facts) in used:",
        "elif False:",
        ("tests/unit/slurm/controller/test_slurm_boards.py",),
    ),
    "slurm-boards-kept": Mutant(
        "slurm controller: a GPU that is kept for a job that has waited long gets instances for others",
        "slurm/controller/long_waits.py",
        "placed=tuple(sorted(gpu.fixed)), locked=True)",
        "placed=tuple(sorted(gpu.fixed)))",
        ("tests/unit/slurm/controller/test_slurm_boards.py",),
    ),
    "slurm-boards-tasks": Mutant(
        "slurm controller: a change is planned for one task of an array, and not for all that wait",
        "slurm/controller/candidates.py",
        "return min(most, demand.copies, ",
        "return min(most, 1, ",
        ("tests/unit/slurm/controller/test_slurm_boards.py",),
    ),
    "slurm-limits-shared": Mutant(
        "slurm controller: the limits of changes keep GPUs idle although no other user waits",
        "slurm/controller/limits.py",
        "if not shared:",
        "if False:",
        ("tests/unit/slurm/controller/test_slurm_decide.py",),
    ),
    "slurm-reserved": Mutant(
        "slurm controller: a node is changed for a job that Slurm does not start there before a reservation",
        "slurm/controller/job_demand.py",
        "if r.start < end and r.end > now for name",
        "if r.start < now and r.end > now for name",
        ("tests/unit/slurm/controller/test_slurm_demands.py",),
    ),
    "slurm-weights": Mutant(
        "slurm weights: a device is billed by its compute alone, whatever memory it takes from others",
        "slurm/gpus/type_facts.py",
        "larger = max(Fraction(self.memory_slices, self.of_memory), Fraction(self.compute_slices, self.of_compute))",
        "larger = Fraction(self.compute_slices, self.of_compute)",
        ("tests/unit/slurm/types/test_billing.py",),
    ),
    "slurm-report-window": Mutant(
        "slurm report: a job counts with all of its hours, also those before the window",
        "slurm/report/window.py",
        "max(start, self.since)",
        "start",
        ("tests/unit/slurm/report/test_job_report.py",),
    ),
    "slurm-report-lost": Mutant(
        "slurm report: a job that slurmctld has forgotten takes hours for ever",
        "slurm/report/job_report.py",
        "return running is not None and old and job.id not in running",
        "return False",
        ("tests/unit/slurm/report/test_job_report.py",),
    ),
    "slurm-report-seen": Mutant(
        "slurm report: a job that was measured for part of its time gets a smaller profile",
        "slurm/report/job_report.py",
        "seen = peak.seen_s is None or peak.seen_s + STEP_S >= ran * _SEEN_SHARE",
        "seen = True",
        ("tests/unit/slurm/report/test_job_report.py",),
    ),
    "slurm-report-first-day": Mutant(
        "slurm report: of a job of several days only the peak of one day counts",
        "slurm/report/measured.py",
        "into[key] = join(into[key], value) if key in into else value",
        "into[key] = value",
        ("tests/unit/slurm/report/test_measured.py",),
    ),
    "cdi-follows-back": Mutant(
        "CDI: a file of ours does not follow the way back of a change that failed",
        "core/engine/apply.py",
        "        _run_uninterrupted(lambda: _update_dependents(run, outcome.inventory))\n",
        "",
        ("tests/unit/core/engine/test_apply.py",),
    ),
    "watch-kind-back": Mutant(
        "client: a watch goes on from where it was after its CRD was deleted and created again",
        "kubernetes/client/watch.py",
        'self._version = ""  # the CRD',
        "pass  # the CRD",
        ("tests/system/kubernetes/test_api_watch.py",),
    ),
    "informer-nothing-written": Mutant(
        "client: a write that changed nothing ends the wait for an earlier one",
        "kubernetes/client/informer.py",
        "elif known is not None and known.metadata.resource_version == written.metadata.resource_version:",
        "elif False:",
        ("tests/unit/kubernetes/client/test_informer.py",),
    ),
    "change-filled": Mutant(
        "add: an instance is created beside a GPU instance without compute instances, which is not filled",
        "core/planner/geometry_change.py",
        "range(units[unit], -1, -1)",
        "range(units[unit], units[unit] - 1, -1)",
        CHANGES,
    ),
    "change-mode": Mutant(
        "add: a GPU outside MIG mode costs no more than one in it",
        "core/planner/geometry_change.py",
        "return held + (busy and changed), mode, destroyed,",
        "return held + (busy and changed), 0, destroyed,",
        CHANGES,
    ),
    "change-bound": Mutant(
        "add: the search over several GPUs expects more of the rest than it costs at least",
        "core/planner/share_search.py",
        "highest = least\n",
        "highest = least + (highest or 0)\n",
        SHARES,
    ),
    "change-prices": Mutant(
        "add: the prices of the linear relaxation are lost",
        "core/planner/share_prices.py",
        "[round(each) for each",
        "[0 for each",
        SHARES,
    ),
    "change-held": Mutant(
        "add: a held instance that goes costs no more than an idle one",
        "core/planner/placed_states.py",
        "(held & ~bits).bit_count()",
        "0",
        SHARES,
    ),
    "change-narrow": Mutant(
        "add: a share is dropped that occurs in a distribution as cheap as the first one found",
        "core/planner/share_search.py",
        "if step[1] - low <= most",
        "if step[1] - low < most",
        SHARES,
    ),
    "change-alike": Mutant(
        "add: GPUs that are alike are searched in every order",
        "core/planner/share_search.py",
        "if n < self._alike_from or field",
        "if n >= 0 or field",
        SHARES,
    ),
    "change-mean": Mutant(
        "add: the first of GPUs that are alike takes all of the widest kind",
        "core/planner/share_search.py",
        "// (len(self._steps_of) - n)) << shift",
        "// 1) << shift",
        SHARES,
    ),
    "layout-bound": Mutant(
        "layout: the search over counts starts above the least cost",
        "core/planner/count_search.py",
        "range(max(0, least), _total",
        "range(max(0, least + 1), _total",
        NODE_LAYOUTS,
    ),
    "layout-most": Mutant(
        "layout: an option that offers more of a limited kind replaces one that offers less",
        "core/planner/node_layout.py",
        "and all(own[n] == offer[n] for n in limited)",
        "",
        NODE_LAYOUTS,
    ),
    "layout-settled": Mutant(
        "layout: a less important cost may raise a more important one",
        "core/planner/count_search.py",
        "return _priced(groups, costs), (*rows, -now), found",
        "return list(groups), rows, found",
        NODE_LAYOUTS,
    ),
    "layout-order": Mutant(
        "layout: the search over counts sees every order of the same options",
        "core/planner/count_search.py",
        "self._descend(group, left - 1, place, new)",
        "self._descend(group, left - 1, 0, new)",
        NODE_LAYOUTS,
    ),
    "layout-optimum": Mutant(
        "layout: the search over counts does not begin with the columns of the linear program",
        "core/planner/count_search.py",
        "(group, number) not in self.taken",
        "False",
        NODE_LAYOUTS,
    ),
    "change-place": Mutant(
        "remove: another instance of the profile may go in place of the one at the named memory slice",
        "core/planner/target_state.py",
        "if target & self.excluded:",
        "if False:",
        CHANGES,
    ),
    "change-room": Mutant(
        "add: what is named to make room is not the least",
        "core/planner/change_space.py",
        "if share not in best or cost < best[share][0]:",
        "if share not in best or cost > best[share][0]:",
        CHANGES,
    ),
    "change-at-least": Mutant(
        "at-least: what is there does not count",
        "core/planner/geometry_change.py",
        "found = next((i for i in left if meets(i, request)), None)",
        "found = next((i for i in left if False), None)",
        (*CHANGES, "tests/unit/core/config/formats/test_native.py"),
    ),
    "pages-pipelined": Mutant(
        "pages: a client that pipelines requests keeps the event loop for itself",
        "foundation/http_server.py",
        "more_follows = self._received or ",
        "more_follows = ",
        ("tests/unit/foundation/test_http_server.py",),
    ),
    "dra-shape": Mutant(
        "DRA: slices have the shape of the first API server for as long as the agent runs",
        "kubernetes/dra/agent/slice_publisher.py",
        "self._knows_version = False  #",
        "self._knows_version = True  #",
        ("tests/unit/kubernetes/dra/agent/test_slice_publisher.py",),
    ),
    "slurm-device-list": Mutant(
        "Slurm: a device list that the kernel refuses is not reported",
        "slurm/check/fence.py",
        "count > fence.FEW_DEVICES",
        "count > 10 * fence.FEW_DEVICES",
        ("tests/unit/slurm/files/test_fence.py",),
    ),
    "capacity-shared-claim": Mutant(
        "capacity: a ResourceClaim that two VMs share counts twice",
        f"{KUBEVIRT}/claim_demand.py",
        "key = user.namespace, found.claim, request",
        "key = user.name, found.claim, request",
        (f"{_UNITS}/kubevirt/test_claim_demand.py",),
    ),
    "vgpu-usage-unreported": Mutant(
        "metrics: the frame buffer that a driver does not report is 0",
        "hardware/nvml/vgpu_usage.py",
        "if code == codes.SUCCESS else None\n\n    def _license",
        "if code == codes.SUCCESS else 0\n\n    def _license",
        ("tests/contract/test_vgpu_usage.py",),
    ),
    "dra-excludes": Mutant(
        "DRA: the counter of an excluding profile admits it twice",
        "kubernetes/dra/model/counters.py",
        "dict.fromkeys(listed, _EXCLUSIVE)",
        "dict.fromkeys(listed, 1)",
        ("tests/unit/kubernetes/dra/model/test_counters.py",),
    ),
    "dra-implied": Mutant(
        "DRA: a limit counts as implied if another one keeps it for one profile",
        "kubernetes/dra/model/counters.py",
        "scaled = all(",
        "scaled = any(",
        DRA_COUNTERS,
    ),
    "dra-vm-share": Mutant(
        "DRA: a time-sliced vGPU takes a part of one memory slice only, so MIG-backed ones fit beside it",
        "kubernetes/dra/model/vm_devices.py",
        "dict.fromkeys(sorted(slices), 1)",
        "dict.fromkeys(sorted(slices)[:1], 1)",
        DRA_VM_COUNTERS,
    ),
    "dra-vm-scale": Mutant(
        "DRA: a MIG-backed vGPU takes of its memory slices what a time-sliced one takes",
        "kubernetes/dra/model/vm_devices.py",
        "instances = {place: scaled(uses) for",
        "instances = {place: dict(uses) for",
        DRA_VM_COUNTERS,
    ),
    "dra-vm-options": Mutant(
        "DRA: beside a device of former options a GPU counts as free",
        "kubernetes/dra/agent/node_devices.py",
        "closed = self._sick | self._formerly_other(node, offer)",
        "closed = self._sick",
        ("tests/unit/kubernetes/dra/agent/test_node_devices.py",),
    ),
    "dra-vm-foreign": Mutant(
        "claims: a vGPU that was not created for a claim is destroyed for one",
        "kubernetes/dra/agent/vm_plan.py",
        " or not is_own_vgpu(self._inventory, self._gpu, vgpu)",
        "",
        VM_CLAIMS,
    ),
    "dra-vm-owned": Mutant(
        "claims: a GPU that a pod or a job has gives VMs vGPUs",
        "kubernetes/dra/agent/vm_plan.py",
        "        if not any(vgpu.held for vgpu in gpu.vgpus):",
        "        if False:",
        VM_CLAIMS,
    ),
    "dra-vm-function": Mutant(
        "claims: a virtual function that others passed through is taken for a whole GPU",
        "kubernetes/dra/agent/vm_plan.py",
        "        if target.whole:\n",
        "        if False:\n",
        VM_CLAIMS,
    ),
    "dra-vm-wait": Mutant(
        "claims: MIG-backed vGPUs of several claims are created at once, and the driver mixes them up",
        "kubernetes/dra/agent/vm_plan.py",
        "any(other.profile_id == target.profile_id for other in planned)",
        "False",
        VM_CLAIMS,
    ),
    "dra-grace": Mutant(
        "DRA: a free device is removed as soon as its taint is written",
        "kubernetes/dra/model/publication.py",
        "GRACE_S = 5.0",
        "GRACE_S = -5.0",
        DRA_PUBLICATION,
    ),
    "dra-taint": Mutant(
        "DRA: a free device is removed without a taint",
        "kubernetes/dra/model/publication.py",
        "        return msgspec.structs.replace(device, taints=(*device.taints, taint))",
        "        return None",
        DRA_PUBLICATION,
    ),
    "dra-allocated": Mutant(
        "DRA: an allocated device changes with its instance",
        "kubernetes/dra/model/publication.py",
        "before.get(name) or wanted[name]",
        "wanted.get(name) or before[name]",
        DRA_PUBLICATION,
    ),
    "dra-hole": Mutant(
        "DRA: an allocated device is in no slice between two writes",
        "kubernetes/dra/model/writes.py",
        " or not lasting <= _devices(state)",
        "",
        DRA_WRITES,
    ),
    "claim-status-others": Mutant(
        "claim status: what other drivers report about a claim is overwritten",
        "kubernetes/dra/agent/claim_status.py",
        "[*others, *entries]",
        "[*entries]",
        CLAIM_STATUS,
    ),
    "claim-status-idle": Mutant(
        "claim status: it is written in every cycle",
        "kubernetes/dra/agent/claim_status.py",
        "if wanted != shown:",
        "if True:",
        CLAIM_STATUS,
    ),
    "claims-created-boot": Mutant(
        "claims: an instance that looks like one of an earlier boot is destroyed as an own one",
        "node/holders/prepared_claims.py",
        "self if self.created_boot == boot else",
        "self if boot else",
        CLAIMS,
    ),
    "claim-view-generation": Mutant(
        "dashboard: a claim finds its device in slices that the scheduler skips",
        "kubernetes/dra/view/allocated.py",
        "known.generation < spec.pool.generation",
        "known.generation > spec.pool.generation",
        CLAIM_VIEW,
    ),
    "extender-order": Mutant(
        "extender: the node that loses the most is preferred",
        "kubernetes/dra/extender/priorities.py",
        "enumerate(sorted(set(costs.values())))",
        "enumerate(sorted(set(costs.values()), reverse=True))",
        PRIORITIES,
    ),
    "extender-after": Mutant(
        "extender: a second device costs as if the first had not been taken",
        "kubernetes/dra/extender/published_node.py",
        "masks[each.gpu] = room.mask | each.device.mask",
        "masks[each.gpu] = room.mask",
        PRIORITIES,
    ),
    "extender-taint": Mutant(
        "extender: a device that is about to be removed counts as free",
        "kubernetes/dra/extender/published_node.py",
        "            and tolerated(each.device.taints, needed.tolerations)\n",
        "",
        ("tests/unit/kubernetes/dra/extender/test_published_node.py",),
    ),
    "extender-selector": Mutant(
        "extender: of a selector that it does not understand it takes the part that it does",
        "kubernetes/dra/extender/selectors.py",
        "if position == len(expression):",
        "if conditions:",
        ("tests/unit/kubernetes/dra/extender/test_demand.py",),
    ),
    "extender-claim": Mutant(
        "extender: a device stays taken after its claim",
        "kubernetes/dra/extender/fleet.py",
        "self._count(before, -1)",
        "self._count((), -1)",
        ("tests/unit/kubernetes/dra/extender/test_fleet.py",),
    ),
    "claims-hold": Mutant(
        "claims: a prepared ResourceClaim holds nothing for other programs",
        "node/holders/prepared_claims.py",
        "for d in each.devices if not d.shared and",
        "for d in each.devices if d.shared and",
        ("tests/unit/node/holders/test_prepared_claims.py", *CLAIMS),
    ),
    "claims-foreign": Mutant(
        "claims: an idle instance that was not created for a claim is destroyed for one",
        "kubernetes/dra/agent/claim_plan.py",
        "not in self._created",
        "is None",
        CLAIMS,
    ),
    "claims-created": Mutant(
        "claims: a killed agent does not know the instance that it had just created",
        "kubernetes/dra/agent/preparer.py",
        "await self._store.add_created(planned.created, await self._node.boot())",
        "planned.created",
        ("tests/laws/property/test_dra_agent.py",),
    ),
    "claims-verify": Mutant(
        "claims: kubelet is answered without a read under the node's lock",
        "kubernetes/dra/agent/preparer.py",
        "if not exists(record, now)}",
        "if not record}",
        CLAIMS,
    ),
    "claims-boot": Mutant(
        "claims: after a reboot kubelet gets devices that do not exist",
        "kubernetes/dra/agent/preparer.py",
        "ready = known.boot == await self._node.boot() and ",
        "ready = ",
        CLAIMS,
    ),
    "claims-due": Mutant(
        "claims: the agent does not wake when the release of a forgotten claim is due",
        "kubernetes/dra/agent/loop.py",
        ", self._keeper.stale.due_s)",
        ")",
        ("tests/unit/kubernetes/dra/agent/test_claim_loop.py",),
    ),
    "dra-check-pool": Mutant(
        "dra check: slices of another driver of the same name count as a claim agent's",
        "cli/dra/check_facts.py",
        "spec.driver == naming.driver and named",
        "spec.driver == naming.driver",
        DRA_CHECK,
    ),
    "dra-check-foreign": Mutant(
        "dra check: another driver's devices are judged by the fields that Aliquot knows",
        "cli/dra/check_slices.py",
        "if own or fault.code in POOL_CODES",
        "if fault.code",
        DRA_CHECK,
    ),
    "dra-check-older": Mutant(
        "dra check: slices that the scheduler ignores count",
        "cli/dra/check_slices.py",
        "each.spec.pool.generation == newest",
        "each.spec.pool.generation <= newest",
        DRA_CHECK,
    ),
    "dra-check-dropped": Mutant(
        "dra check: a class without a resource is taken for one whose resource was dropped",
        "cli/dra/check_facts.py",
        "return bool(applied.spec.extended_resource_name)",
        "return True",
        DRA_CHECK,
    ),
    "dra-check-zero": Mutant(
        "dra check: a device plugin that ended clashes with the slices",
        "cli/dra/check_nodes.py",
        "quantity.value > 0",
        "quantity.value >= 0",
        DRA_CHECK,
    ),
    "host-mounts": Mutant(
        "a disk with the host's file systems may be passed through",
        "hardware/kernel/function_users.py",
        "        if device in blocks or number in numbers:\n            yield f",
        "        if not device:\n            yield f",
        FUNCTION_USERS,
    ),
    "host-uplinks": Mutant(
        "the card of the host's bond may be passed through",
        "hardware/kernel/function_users.py",
        '        yield from (f"its interface {name} is part of {each}" for each in above)',
        "        yield from ()",
        FUNCTION_USERS,
    ),
    "host-multipath": Mutant(
        "a disk of an NVMe subsystem counts as no controller's",
        "hardware/kernel/function_users.py",
        "        elif controllers:",
        "        elif not controllers:",
        FUNCTION_USERS,
    ),
    "host-exclusive": Mutant(
        "a disk of a ZFS pool may be passed through",
        "hardware/kernel/function_users.py",
        "            if files.claimed(",
        "            if False and files.claimed(",
        FUNCTION_USERS,
    ),
    "host-storage-network": Mutant(
        "the card that carries the host's storage network may be passed through",
        "hardware/kernel/function_users.py",
        "    return {**network.configured, **network.needed}",
        "    return network.needed",
        FUNCTION_USERS,
    ),
    "license-expiry": Mutant(
        "a license's end on a day that does not exist ends the reading of all vGPUs",
        "hardware/nvml/vgpu_usage.py",
        "    except ValueError:",
        "    except KeyError:",
        ("tests/unit/hardware/nvml/test_vgpu_usage.py",),
    ),
    "usb-claim-of-vm": Mutant(
        "the claim of a USB device goes while a VM has it, so a second VM may get it",
        f"{HARVESTER}/peripherals/usb_devices.py",
        "        if leaving and held and _allocation(view, name) is None:",
        "        if leaving and held:",
        (f"{OBJECTS[0]}/peripherals/test_usb_objects.py",),
    ),
    "stale-port": Mutant(
        "the virtual functions of a port are set though it became the uplink since the observation",
        "kubernetes/virtual_machines/agent/peripherals.py",
        "            if each not in requests(",
        "            if False and each not in requests(",
        (f"{_UNITS}/agent/test_host_peripherals.py",),
    ),
    "host-usb": Mutant(
        "a USB disk with the host's file systems is offered to VMs",
        f"{HARVESTER}/peripherals/usb_devices.py",
        "    if device is not None and device.user:",
        "    if False:",
        (f"{OBJECTS[0]}/peripherals/test_usb_objects.py",),
    ),
    "function-override": Mutant(
        "a function keeps the override of vfio-pci, so pcidevices cannot give it back",
        "hardware/kernel/pci.py",
        "    if driver_override(files, pci):",
        "    if wanted != VFIO and driver_override(files, pci):",
        (f"{OBJECTS[0]}/test_all_devices_moves.py",),
    ),
    "function-boards": Mutant(
        "a GPU is bound like a network card, beside its instances and vGPUs",
        f"{HARVESTER}/other_functions.py",
        "(f.vendor_id, _slot(f.address)) not in boards)",
        "f.address not in boards)",
        (f"{OBJECTS[0]}/test_all_devices.py", *OBJECTS),
    ),
    "function-uplinks": Mutant(
        "the cards of Harvester's own networks are listed",
        f"{HARVESTER}/other_functions.py",
        "    return not (is_shared or function.uplink.endswith(_HARVESTER_UPLINKS))",
        "    return not is_shared",
        (f"{OBJECTS[0]}/test_all_devices.py",),
    ),
    "function-driver": Mutant(
        "a function goes back to any driver, not to the recorded one",
        f"{HARVESTER}/other_functions.py",
        'if d not in ("", VFIO)), "")',
        'if d in ("", VFIO)), "")',
        (f"{OBJECTS[0]}/test_all_devices.py",),
    ),
}


def _link(folder: Path, file: Path) -> Path:
    """Fill a folder with links to the repository's entries beside ``file`` and beside each of its parents below ROOT.
    Return the path of ``file`` there, which does not exist yet. A copy of the whole source takes a third of a test, and
    so does compiling again what is beside it.
    """
    way = [ROOT / each for each in (file, *file.parents)]
    for parent in way[-2:0:-1]:
        here = folder / parent.relative_to(ROOT)
        (here / "__pycache__").mkdir(parents=True)
        for entry in {*parent.iterdir()}.difference(way, [parent / "__pycache__"]):
            (here / entry.name).symlink_to(entry)
        for entry in (parent / "__pycache__").glob("*.pyc"):
            if not entry.name.startswith(f"{file.stem}."):
                (here / "__pycache__" / entry.name).symlink_to(entry)
    return folder / file


def run(mutant: Mutant, server: fresh_pytest.Server, tests: Sequence[str] = ()) -> list[str]:
    """Return the first test that fails on the source with the mutant in it; empty if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        text = (ROOT / "src/aliquot" / mutant.file).read_text()
        if text.count(mutant.old) != 1:
            raise SystemExit(f"{mutant.file}: expected exactly one {mutant.old!r}")
        _link(Path(folder), Path("src/aliquot") / mutant.file).write_text(text.replace(mutant.old, mutant.new))
        path = (f"{folder}/src", str(ROOT / "tests"))
        env = os.environ | {"PYTHONPATH": os.pathsep.join(path), "ALIQUOT_ALL": "1", "ALIQUOT_CYCLES": "120"}
        env.pop("ALIQUOT_MEASURED", None)
        words = ["-q", "-x", "--no-header", "--tb=no", "-rfE", *(tests or mutant.tests)]
        printed = server.run(words, path, env)
    return [
        line.split(" - ")[0].partition(" ")[2] for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))
    ]


def main() -> int:
    with fresh_pytest.server() as server:
        if len(sys.argv) > 1:
            print("\n".join(run(MUTANTS[sys.argv[1]], server)) or "nothing failed")
        else:
            _write_page(server)
    return 0


def _write_page(server: fresh_pytest.Server) -> None:
    rows = [
        "# Proof that the tests can fail",
        "",
        "This page lists deliberate defects (mutants) with the test that finds each, and the claims that",
        "tests check. `python tools/mutants.py` writes the first table. `make test-all` runs each named test",
        "against its mutant and requires it to fail. `make test` does so for a tenth of them, and for those",
        "of files that changed in the last day.",
    ]
    rows += ["", "| broken on purpose | first test that fails |", "|---|---|"]
    for name, mutant in MUTANTS.items():
        failed = run(mutant, server)
        rows.append(f"| {mutant.what} | {'`' + failed[0] + '`' if failed else '**none**'} |")
        print(name, failed or "SURVIVED", flush=True)
    page = ROOT / "docs/proof.md"
    _, heading, rest = page.read_text().partition("\n## ")  # the sections below the table are written by hand
    page.write_text("\n".join(rows) + "\n" + heading + rest)


if __name__ == "__main__":
    raise SystemExit(main())
