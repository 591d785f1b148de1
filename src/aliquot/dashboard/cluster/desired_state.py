"""The desired state of a cluster node: the named config for its label, and the plan.

After the label changes, the node's agent makes the same plan from the same text and executes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from aliquot.core.config.export import export_native
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.model.actions import Action
from aliquot.core.model.claims import without_holders
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.core.planner.semantics import step
from aliquot.dashboard.change_requests import FitInstance, PartitionGpu, Repair, UseConfig
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.cluster.node_views import NodeParts
from aliquot.dashboard.local import desired_state
from aliquot.errors import BlockedError, NoSuchGpuError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import DATA_KEY, ConfigFailure, NamedConfigSource, config_map_source, resolve
from aliquot.kubernetes.gpu.node_document import DocumentSource, NodeDocument
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup

NodeChangeRequest = UseConfig | PartitionGpu | FitInstance | Repair
_REFUSE = Policy()
_FORCE = Policy(held="force")


class NodeChange(msgspec.Struct, frozen=True):
    """The planned change of one node."""

    node: str
    plan: Plan
    inventory: Inventory
    label: str
    """The named config to set."""
    text: str = ""
    """The config file, if the config was generated for this node only; "" otherwise."""
    previous_label: str = ""
    """The label when the change was planned."""
    holders: str = ""
    """The policy for holders during the change, "" for the node's own."""
    repair: bool = False


def node_change(
    request: NodeChangeRequest, parts: NodeParts, sources: Sequence[NamedConfigSource]
) -> NodeChange | ConfigFailure:
    """Plan a request for one node. Pure. Raises AliquotError if the request is invalid."""
    document = parts.gpus
    if document is None:
        return _no_agent(parts)
    if document.for_vms:
        text = f"the agent of {parts.name} follows the label {names.VGPU_CONFIG_LABEL}, which this page does not set"
        step = f"kubectl label node {parts.name} {names.VGPU_CONFIG_LABEL}=NAME --overwrite"
        return ConfigFailure("NotOurs", text, (), step)
    if not document.manages:
        text = f"another program applies the label {names.CONFIG_LABEL} of {parts.name}, so its plan is not known"
        return ConfigFailure(
            "NotOurs", text, (), f"kubectl label node {parts.name} {names.CONFIG_LABEL}=NAME --overwrite"
        )
    if document.claims_driver:
        text = f"the GPUs of {parts.name} are partitioned by claims: pods request devices of {document.claims_driver}"
        step = f"kubectl label node {parts.name} {names.ALLOCATION_LABEL}=plugin --overwrite"
        return ConfigFailure("Claims", text, (), step)
    node = parts.node
    previous_label = node.metadata.labels.get(names.CONFIG_LABEL, "") if node is not None else ""
    if isinstance(request, UseConfig | Repair):
        label = request.config if isinstance(request, UseConfig) else previous_label
        if not label:
            text = f"no config was requested for {parts.name} yet, so there is nothing to restore"
            return ConfigFailure(
                "NoWish", text, (), f"kubectl label node {parts.name} {names.CONFIG_LABEL}=all-balanced"
            )
        resolved = resolve(label, sources, document.inventory, document.reserved)
        if resolved.desired is None:
            return resolved.failure or ConfigFailure("NotUnderstood", f"config {label} cannot be read")
        planned, holders = _planned(request, document, resolved.desired)
        return NodeChange(
            parts.name, planned, document.inventory, label, "", previous_label, holders, repair=label == previous_label
        )
    return _own_config_change(request, parts, document, previous_label)


def _own_config_change(
    request: PartitionGpu | FitInstance, parts: NodeParts, document: NodeDocument, previous_label: str
) -> NodeChange | ConfigFailure:
    """Plan the partitioning of one GPU as a config for this node only, which keeps the node's other GPUs."""
    if request.gpu in document.reserved:
        text = f"GPU {request.gpu} is used for VMs: its SRIOVGPUDevice is enabled"
        return ConfigFailure("Reserved", text, (), "kubectl get migconfigurations")
    inventory = document.inventory
    try:
        desired = (
            desired_state.partition(request, inventory)
            if isinstance(request, PartitionGpu)
            else desired_state.fit_instance(request, inventory)
        )
    except NoSuchGpuError as error:
        return ConfigFailure("NO_SUCH_GPU", error.brief, error.details, error.next_step or "")
    planned, holders = _planned(request, document, desired)
    if planned.blocked:
        return NodeChange(parts.name, planned, inventory, "", "", previous_label, holders)
    text, label = own_config(_after(inventory, planned.actions), document)
    return NodeChange(
        parts.name, planned, inventory, label, text, previous_label, holders, repair=label == previous_label
    )


def own_config(inventory: Inventory, document: NodeDocument) -> tuple[str, str]:
    """Generate the config file that describes these GPUs. Return its text and the name of its config."""
    reserved = set(document.reserved)
    own_gpus = tuple(
        g for g in inventory.gpus if g.mig.capable and g.pci not in reserved and not g.passthrough and not g.vgpus
    )
    found = export_native(msgspec.structs.replace(inventory, gpus=own_gpus), "")
    entries = found["configs"][""]  # type: ignore[index]
    digest = hashlib.sha256(msgspec.json.encode(entries)).hexdigest()[:8]
    label = f"{names.OWN_PREFIX}{digest}"
    return to_yaml({"version": found["version"], "configs": {label: entries}}), label


def _after(inventory: Inventory, actions: Sequence[Action]) -> Inventory:
    """Compute the inventory after the actions, as if holders had released their instances."""
    inventory = msgspec.structs.replace(inventory, gpus=tuple(map(without_holders, inventory.gpus)))
    for action in actions:
        inventory = step(inventory, action)
    return inventory


def _planned(request: NodeChangeRequest, document: NodeDocument, desired: Desired) -> tuple[Plan, str]:
    """Return the plan and the policy that must be set for it.

    If the policy allows to evict holders, the plan is that for the state after they left.
    """
    holders = request.policy if request.policy != "refuse" else ""
    plan = make(document.inventory, desired, _REFUSE)
    held = plan.blocked and all(b.rule == "HELD" for b in plan.blockers)
    if held and (holders or document.holders) not in ("", "refuse"):
        return make(document.inventory, desired, _FORCE), holders
    return plan, holders if held else ""


def _no_agent(parts: NodeParts) -> ConfigFailure:
    if parts.vgpus is not None:
        text = f"the GPUs of {parts.name} are used for VMs: change their MIG configuration instead"
        return ConfigFailure("VirtualMachines", text, (), "kubectl get migconfigurations")
    step_ = f"kubectl label node {parts.name} {names.DEPLOY_LABEL}=true --overwrite"
    return ConfigFailure("NoAgent", f"no agent has reported the GPUs of {parts.name}", (), step_)


class Configs:
    """Sources of each node's named configs. Generated texts are cached, because many nodes are equal."""

    def __init__(self, cache: ClusterCache, namespace: str) -> None:
        self._view = cache
        self._namespace = namespace
        self._generated: dict[tuple[object, ...], str] = {}

    def maps(self, node: str, document: NodeDocument) -> tuple[str, ...]:
        """Return the names of the ConfigMaps that a node's agent reads, without the generated one."""
        found = [self._local_name(each) for each in document.sources if not each.text]
        return tuple(name for name in found if name and name != _generated_map(node))

    def sources(self, node: str, document: NodeDocument) -> list[NamedConfigSource]:
        """Return the sources in the agent's order of precedence."""
        found = []
        for each in document.sources:
            name = self._local_name(each)
            if each.text:
                found.append(NamedConfigSource(each.name, each.text))
            elif name == _generated_map(node):
                text = self._text(document.inventory)
                found.append(NamedConfigSource(each.name, text, config_map=each.config_map))
            elif name:
                self._view.follow_maps((name,))
                text = self._view.text(name)
                found.append(config_map_source(each.config_map, None if text is None else {DATA_KEY: text}))
            else:
                why = "it is too large to be published, or the agent cannot read it"
                found.append(NamedConfigSource(each.name, None, f"{each.name} is not available: {why}"))
        return found

    def _local_name(self, source: DocumentSource) -> str:
        """Return the name of a ConfigMap in the agents' namespace, "" for another source."""
        namespace, _, name = source.config_map.partition("/")
        return name if namespace == self._namespace else ""

    def _text(self, inventory: Inventory) -> str | None:
        key = tuple((g.product, g.family, g.pci_device, g.index) for g in inventory.gpus)
        if key not in self._generated:
            try:
                self._generated[key] = to_yaml(generate(inventory))
            except BlockedError:
                return None
        return self._generated[key]


def _generated_map(node: str) -> str:
    """Return the name of the ConfigMap with a node's generated configs. The same text is generated here."""
    return AgentSetup(node).generated_map
