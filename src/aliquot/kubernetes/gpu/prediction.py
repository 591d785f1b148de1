"""What a wish would make of a node's labels and resources, before anything is done.

The node after the wish (``afterwards``) goes through the same functions that label and offer the real one. Sources for
what a strategy cannot say: NVIDIA's GPU Operator documentation ("MIG strategy") and the behaviour of its plugin.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu.container_gpus import Card, attribute_fault, cards, single_fault
from aliquot.kubernetes.gpu.device_resources import WHOLE, counts
from aliquot.kubernetes.gpu.gfd_labels import OURS, PREFIX, PRESENT, labels
from aliquot.kubernetes.gpu.label_names import product_value
from aliquot.kubernetes.gpu.predicted_node import afterwards, assumed

Remedy = Callable[[str], str]
"""The command that makes a strategy the cluster's."""

_WITHOUT_FACTS = ("gpu.machine", "gpu.mode", "mps.capable", "vgpu.present")


class Prediction(msgspec.Struct, frozen=True):
    """``labels``: all but the time; ``resources``: how many of each name; ``warnings`` and ``refusals``: sentences;
    ``next_step``: the command that makes the refusals go away.
    """

    labels: dict[str, str]
    resources: dict[str, int]
    warnings: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()
    next_step: str | None = None


def cluster_policy(strategy: str) -> str:
    """For clusters with NVIDIA's GPU Operator, as its documentation has it."""
    return (
        "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type='json' "
        f"""-p='[{{"op":"replace", "path":"/spec/mig/strategy", "value":"{strategy}"}}]'"""
    )


def settings_map(namespace: str) -> Remedy:
    """For clusters without the operator: our own settings, which a patch would replace as a whole."""

    def command(strategy: str) -> str:
        return (
            f"kubectl -n {namespace} edit configmap aliquot-settings   # settings.yaml: mig: {{strategy: {strategy}}}"
        )

    return command


def predict(
    inventory: Inventory,
    desired: Desired,
    strategy: str,
    facts: Facts | None = None,
    remedy: Remedy = cluster_policy,
) -> Prediction:
    """Labels and resources of the node once the wish is met. Without ``facts`` the labels that need them are left out,
    and figures that no table has are always. Raises ConfigError for a strategy that there is not.
    """
    node, known = afterwards(inventory, facts or assumed(inventory), desired)
    present, _ = cards(node, known)
    refusals, better = _refusals(present, desired.name, strategy)
    return Prediction(
        labels=_labels(node, known, strategy, bool(facts)),
        resources=counts(node, known, strategy),
        warnings=_warnings(present, node.driver, strategy),
        refusals=refusals,
        next_step=remedy(better) if refusals else None,
    )


def _labels(node: Inventory, known: Facts, strategy: str, whole: bool) -> dict[str, str]:
    found = labels(node, known, strategy, now=0)
    del found[PREFIX + "gfd.timestamp"]
    return found if whole else {k: v for k, v in found.items() if _told(k)}


def _told(name: str) -> bool:
    """Whether a label can be predicted from the inventory alone."""
    plain = name.removeprefix(PREFIX)
    return plain == PRESENT or OURS in name or (not plain.startswith("cuda.") and plain not in _WITHOUT_FACTS)


def _refusals(present: tuple[Card, ...], config: str, strategy: str) -> tuple[tuple[str, ...], str]:
    """What the strategy cannot offer, and the one that can. GPUs in MIG mode without any MIG device on the node are a
    step on the way, not a result: they are warned about.
    """
    divided = [card for card in present if card.devices]
    if not divided or strategy == "mixed":
        return (), ""
    name = f"config {config}" if config else "the wish"
    fault = single_fault(present)
    if strategy == "none":
        better = "single" if fault is None and attribute_fault(present) is None else "mixed"
        said = f"{name} makes MIG devices: strategy none would hand their GPUs out whole, as {WHOLE}"
        return (said,), better
    if fault is not None:
        label = _invalid(present)
        return (f"{name} does not fit strategy single, which would label the node {label}: {fault}",), "mixed"
    fault = attribute_fault(present)
    if fault is not None:
        return (f"{name} does not fit strategy single, under which nothing would be offered: {fault}",), "mixed"
    return (), ""


def _invalid(present: tuple[Card, ...]) -> str:
    """The product label of a node that strategy single cannot name."""
    first = next(card for card in present if card.enabled)
    return product_value(first.gpu.product, "MIG", "INVALID")


def _warnings(present: tuple[Card, ...], driver: str, strategy: str) -> tuple[str, ...]:
    said = []
    on = [card for card in present if card.enabled]
    empty = [card for card in on if not card.devices]
    if on and len(on) < len(present):
        bad = drivers.bad_with_mixed_modes(driver)
        said += [bad] if bad else []
    if empty and strategy == "none":
        said.append(f"{len(empty)} GPUs in MIG mode without MIG devices: strategy none hands them out whole")
    elif empty:
        said.append(f"{len(empty)} GPUs in MIG mode without MIG devices: they offer nothing until they are divided")
    return tuple(said)
