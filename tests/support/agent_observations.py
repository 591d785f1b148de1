"""Observations for tests of the agent's decisions: a node, a label, and the decisions that follow from them."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.config.settings import AgentSettings
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan as make
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import DATA_KEY, NamedConfigSource, config_map_source, resolve
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks
from aliquot.kubernetes.gpu.node_status import AgentStatus, parse
from aliquot.kubernetes.gpu.prediction import predict
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Durable, Observation
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, held_by_pods
from support.factory import inventory as make_inventory

OPERANDS = {f"{names.DEPLOY_PREFIX}{each}": "true" for each in ("device-plugin", "gpu-feature-discovery", "dcgm")}
MIXED = AgentSettings(strategy="mixed")


def node(*products: str, enabled: bool = True) -> Inventory:
    return make_inventory(*(products or ("a100-sxm4-40gb*2",)), enabled=enabled)


def make_observation(
    label: str | None,
    inventory: Inventory | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    settings: AgentSettings = MIXED,
    sources: list[NamedConfigSource] | None = None,
    uses: tuple[PodDeviceUse, ...] = (),
    unschedulable: bool = False,
    durable: Durable | None = None,
    **more: Any,
) -> Observation:
    """Build what an observer would see. ``sources`` default to the generated configs."""
    found = inventory or node()
    marks = more.pop("marks", None) or NodeMarks({**OPERANDS, **(labels or {})}, annotations or {}, unschedulable)
    o = Observation(
        node="gpu-1",
        now=more.pop("now", 1000.0),
        clock=more.pop("clock", 1000.0),
        boot=more.pop("boot", "boot-1"),
        marks=marks,
        settings=settings,
        durable=durable or Durable(),
        label=label,
        state=marks.labels.get(names.STATE_LABEL, ""),
        status=parse(marks.annotations.get(names.STATUS_ANNOTATION)),
        inventory=found,
        **more,
    )
    if label is None or o.failure is not None:
        return o
    texts = sources or [config_map_source("gpu/n1-mig-config", {DATA_KEY: to_yaml(generate(found))})]
    request = resolve(label, texts, found)
    if request.desired is None:
        return msgspec.structs.replace(o, request=request)
    plan = make(held_by_pods(found, uses), request.desired, Policy())
    return msgspec.structs.replace(
        o, request=request, plan=plan, prediction=predict(found, request.desired, settings.strategy)
    )


def messages(status: AgentStatus) -> tuple[dict[str, str], dict[str, str]]:
    """Return the labels and annotations of a node that reports this status."""
    return {names.STATE_LABEL: status.state}, {names.STATUS_ANNOTATION: status.document()}


def published(o: Observation, **more: Any) -> AgentMemory:
    """Build the memory of an agent that has published the current state."""
    return AgentMemory(published=o.key, **more)
