"""What a wish would make of a node's labels and resources, before anything is done.

The node after the wish (``predicted_node``) goes through the same functions that label and offer the real one. Sources
for what a strategy cannot say: NVIDIA's GPU Operator documentation ("MIG strategy") and the behaviour of its plugin.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model import driver_checks as drivers
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu.container_gpus import ContainerGpu, single_strategy_error, size_mismatch, usable_gpus
from aliquot.kubernetes.gpu.device_resources import WHOLE_GPU, resource_counts
from aliquot.kubernetes.gpu.gfd_labels import OURS, PREFIX, PRESENT, labels
from aliquot.kubernetes.gpu.label_names import product_value
from aliquot.kubernetes.gpu.predicted_node import assumed_facts, predicted_node

Remedy = Callable[[MigStrategy], str]
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


def cluster_policy(strategy: MigStrategy) -> str:
    """For clusters with NVIDIA's GPU Operator, as its documentation has it."""
    return (
        "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type='json' "
        f"""-p='[{{"op":"replace", "path":"/spec/mig/strategy", "value":"{strategy}"}}]'"""
    )


def settings_map(namespace: str) -> Remedy:
    """For clusters without the operator: our own settings, which a patch would replace as a whole."""

    def command(strategy: MigStrategy) -> str:
        return (
            f"kubectl -n {namespace} edit configmap aliquot-settings   # settings.yaml: mig: {{strategy: {strategy}}}"
        )

    return command


def predict(
    inventory: Inventory,
    desired: Desired,
    strategy: MigStrategy,
    facts: Facts | None = None,
    remedy: Remedy = cluster_policy,
) -> Prediction:
    """Labels and resources of the node once the wish is met. Without ``facts`` the labels that need them are left out,
    and figures that no table has are always.
    """
    node, known = predicted_node(inventory, facts or assumed_facts(inventory), desired)
    gpus, _ = usable_gpus(node, known)
    refusals, better = _refusals(gpus, desired.name, strategy)
    return Prediction(
        labels=_labels(node, known, strategy, bool(facts)),
        resources=resource_counts(node, known, strategy),
        warnings=_warnings(gpus, node.driver, strategy),
        refusals=refusals,
        next_step=remedy(better) if better else None,
    )


def _labels(node: Inventory, known: Facts, strategy: MigStrategy, with_facts: bool) -> dict[str, str]:
    found = labels(node, known, strategy, now=0)
    del found[PREFIX + "gfd.timestamp"]
    return found if with_facts else {k: v for k, v in found.items() if _is_predictable(k)}


def _is_predictable(name: str) -> bool:
    """Whether a label can be predicted from the inventory alone."""
    plain = name.removeprefix(PREFIX)
    return plain == PRESENT or OURS in name or (not plain.startswith("cuda.") and plain not in _WITHOUT_FACTS)


def _refusals(
    gpus: tuple[ContainerGpu, ...], config: str, strategy: MigStrategy
) -> tuple[tuple[str, ...], MigStrategy | None]:
    """What the strategy cannot offer, and the one that can. GPUs in MIG mode without any MIG device on the node are a
    step on the way, not a result: they are warned about.
    """
    partitioned = [container_gpu for container_gpu in gpus if container_gpu.devices]
    if not partitioned or strategy == "mixed":
        return (), None
    name = f"config {config}" if config else "the wish"
    error = single_strategy_error(gpus)
    if strategy == "none":
        better: MigStrategy = "single" if error is None and size_mismatch(gpus) is None else "mixed"
        sentence = f"{name} makes MIG devices: strategy none would hand their GPUs out whole, as {WHOLE_GPU}"
        return (sentence,), better
    if error is not None:
        label = _invalid(gpus)
        return (f"{name} does not fit strategy single, which would label the node {label}: {error}",), "mixed"
    error = size_mismatch(gpus)
    if error is not None:
        return (f"{name} does not fit strategy single, under which nothing would be offered: {error}",), "mixed"
    return (), None


def _invalid(gpus: tuple[ContainerGpu, ...]) -> str:
    """The product label of a node that strategy single cannot name."""
    first = next(container_gpu for container_gpu in gpus if container_gpu.enabled)
    return product_value(first.gpu.product, "MIG", "INVALID")


def _warnings(gpus: tuple[ContainerGpu, ...], driver: str, strategy: MigStrategy) -> tuple[str, ...]:
    sentences = []
    mig_gpus = [container_gpu for container_gpu in gpus if container_gpu.enabled]
    empty = [container_gpu for container_gpu in mig_gpus if not container_gpu.devices]
    if mig_gpus and len(mig_gpus) < len(gpus):
        bad = drivers.bad_with_mixed_modes(driver)
        sentences += [bad] if bad else []
    if empty and strategy == "none":
        sentences.append(f"{len(empty)} GPUs in MIG mode without MIG devices: strategy none hands them out whole")
    elif empty:
        sentences.append(
            f"{len(empty)} GPUs in MIG mode without MIG devices: they offer nothing until they are divided"
        )
    return tuple(sentences)
