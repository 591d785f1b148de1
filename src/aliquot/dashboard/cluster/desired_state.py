"""What an ask about a node comes to: the named config that its label would name, and the planner's way there.

The node's own agent makes the same plan from the same text when the label has changed; it is the one that acts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from aliquot.core.config.export import export_native
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.model.actions import Action
from aliquot.core.model.claims import unheld
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.core.planner.semantics import step
from aliquot.dashboard.change_requests import Cut, MakeRoom, Repair, UseConfig
from aliquot.dashboard.cluster.cluster_cache import View
from aliquot.dashboard.cluster.node_views import Parts
from aliquot.dashboard.local import desired_state as wishes
from aliquot.errors import BlockedError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import Source, Trouble, data_of, read
from aliquot.kubernetes.gpu.node_document import Document
from aliquot.kubernetes.label_agent.agent.settings import Place

NodeAsk = UseConfig | Cut | MakeRoom | Repair
_REFUSE = Policy()
_FORCE = Policy(held="force")


class Way(msgspec.Struct, frozen=True):
    """How one node gets there. ``label`` is the named config that it is to have, ``text`` the file with that config
    where it was made for this node alone, "" otherwise. ``was`` is the label of the look that this was made from,
    ``holders`` the policy to be set for the time of the change, "" for the node's own.
    """

    node: str
    plan: Plan
    inventory: Inventory
    label: str
    text: str = ""
    was: str = ""
    holders: str = ""
    repair: bool = False


def way(ask: NodeAsk, parts: Parts, sources: Sequence[Source]) -> Way | Trouble:
    """Pure. Raises AliquotError for what is wrong on every machine."""
    document = parts.gpus
    if document is None:
        return _nobody(parts)
    if not document.manages:
        text = f"another program carries out the label {names.CONFIG_LABEL} of {parts.name}: its plan is not known here"
        return Trouble("NotOurs", text, (), f"kubectl label node {parts.name} {names.CONFIG_LABEL}=NAME --overwrite")
    node = parts.node
    was = node.metadata.labels.get(names.CONFIG_LABEL, "") if node is not None else ""
    if isinstance(ask, UseConfig | Repair):
        label = ask.config if isinstance(ask, UseConfig) else was
        if not label:
            text = f"nothing was asked of {parts.name} yet: there is nothing to go back to"
            return Trouble("NoWish", text, (), f"kubectl label node {parts.name} {names.CONFIG_LABEL}=all-balanced")
        wish = read(label, sources, document.inventory, document.reserved)
        if wish.desired is None:
            return wish.trouble or Trouble("NotUnderstood", f"{label} cannot be read")
        planned, holders = _planned(ask, document, wish.desired)
        return Way(parts.name, planned, document.inventory, label, "", was, holders, repair=label == was)
    return _own(ask, parts, document, was)


def _own(ask: Cut | MakeRoom, parts: Parts, document: Document, was: str) -> Way | Trouble:
    """A cut of one GPU as a config of this node's own, which says of its other GPUs that they stay as they are."""
    if ask.gpu in document.reserved:
        text = f"GPU {ask.gpu} belongs to virtual machines: an enabled SRIOVGPUDevice has it"
        return Trouble("Reserved", text, (), "kubectl get migconfigurations")
    inventory = document.inventory
    try:
        desired = wishes.cut(ask, inventory) if isinstance(ask, Cut) else wishes.room(ask, inventory)
    except BlockedError as error:
        return Trouble(error.code, error.brief, error.details, error.next_step or "")
    planned, holders = _planned(ask, document, desired)
    if planned.blocked:
        return Way(parts.name, planned, inventory, "", "", was, holders)
    text, label = own_config(_after(inventory, planned.actions), document)
    return Way(parts.name, planned, inventory, label, text, was, holders, repair=label == was)


def own_config(inventory: Inventory, document: Document) -> tuple[str, str]:
    """The config file that says what these GPUs are, and the name of its config."""
    away = set(document.reserved)
    mine = tuple(g for g in inventory.gpus if g.mig.capable and g.pci not in away and not g.passthrough and not g.vgpus)
    found = export_native(msgspec.structs.replace(inventory, gpus=mine), "")
    entries = found["configs"][""]  # type: ignore[index]
    digest = hashlib.sha256(msgspec.json.encode(entries)).hexdigest()[:8]
    label = f"{names.OWN_PREFIX}{digest}"
    return to_yaml({"version": found["version"], "configs": {label: entries}}), label


def _after(inventory: Inventory, actions: Sequence[Action]) -> Inventory:
    """Once whoever holds what must go has left, as the plan takes it."""
    inventory = msgspec.structs.replace(inventory, gpus=tuple(map(unheld, inventory.gpus)))
    for action in actions:
        inventory = step(inventory, action)
    return inventory


def _planned(ask: NodeAsk, document: Document, desired: Desired) -> tuple[Plan, str]:
    """The plan, and the policy that must be set for it. Where the policy lets holders be asked to leave, the plan is
    that of when they have.
    """
    holders = ask.policy if ask.policy != "refuse" else ""
    plan = make(document.inventory, desired, _REFUSE)
    held = plan.blocked and all(b.rule == "HELD" for b in plan.blockers)
    if held and (holders or document.holders) not in ("", "refuse"):
        return make(document.inventory, desired, _FORCE), holders
    return plan, holders if held else ""


def _nobody(parts: Parts) -> Trouble:
    if parts.vgpus is not None:
        text = f"the GPUs of {parts.name} belong to virtual machines: they are cut by their MIG configuration"
        return Trouble("VirtualMachines", text, (), "kubectl get migconfigurations")
    step_ = f"kubectl label node {parts.name} {names.DEPLOY_LABEL}=true --overwrite"
    return Trouble("NoAgent", f"no agent has told what GPUs {parts.name} has", (), step_)


class Configs:
    """Where each node's named configs are written. What is generated is remembered: nodes are alike."""

    def __init__(self, view: View, namespace: str) -> None:
        self._view = view
        self._namespace = namespace
        self._generated: dict[tuple[object, ...], str] = {}

    def maps(self, node: str, document: Document) -> tuple[str, ...]:
        """The ConfigMaps that a node's agent reads, without what is generated."""
        prefix = f"ConfigMap {self._namespace}/"
        found = [s.name.removeprefix(prefix) for s in document.sources if s.name.startswith(prefix) and not s.text]
        return tuple(name for name in found if name != _made(node))

    def sources(self, node: str, document: Document) -> list[Source]:
        """As the agent reads them, the first one that decides first."""
        prefix = f"ConfigMap {self._namespace}/"
        found = []
        for each in document.sources:
            name = each.name.removeprefix(prefix)
            if each.text:
                found.append(Source(each.name, each.text))
            elif name == _made(node):
                found.append(Source(each.name, self._text(document.inventory)))
            elif each.name.startswith(prefix):
                self._view.want((name,))
                text = self._view.text(name)
                found.append(data_of(f"{self._namespace}/{name}", None if text is None else {"config.yaml": text}))
            else:
                why = "too big to be shown, or its agent cannot read it"
                found.append(Source(each.name, None, f"{each.name} is not known here: {why}"))
        return found

    def _text(self, inventory: Inventory) -> str | None:
        key = tuple((g.product, g.family, g.pci_device, g.index) for g in inventory.gpus)
        if key not in self._generated:
            try:
                self._generated[key] = to_yaml(generate(inventory))
            except BlockedError:
                return None
        return self._generated[key]


def _made(node: str) -> str:
    """The ConfigMap with what is generated for a node: the same text is generated here."""
    return Place(node).generated_map
