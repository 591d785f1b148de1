"""Observer: reads everything that a decision needs into one frozen observation."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from aliquot.core.config.formats.gpu_clients import load_clients
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.settings import AgentSettings, merge
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation.logfmt import NewWarnings
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import (
    DATA_KEY,
    ConfigFailure,
    DesiredConfig,
    NamedConfigSource,
    config_map_source,
    failure_of,
    internal_failure,
    resolve,
)
from aliquot.kubernetes.gpu.managed_label import ManagedLabel
from aliquot.kubernetes.gpu.misspellings import near_misses
from aliquot.kubernetes.gpu.node_status import parse
from aliquot.kubernetes.gpu.prediction import Prediction, Remedy, cluster_policy, predict, settings_map
from aliquot.kubernetes.gpu.reasons import DRIVER_HANGS, INVALID_SETTINGS, FailureReason
from aliquot.kubernetes.label_agent.agent import decision
from aliquot.kubernetes.label_agent.agent.affected_devices import held_devices
from aliquot.kubernetes.label_agent.agent.agent_node import AgentNode
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings
from aliquot.kubernetes.label_agent.agent.memo import Memoized
from aliquot.kubernetes.label_agent.agent.node_informer import NotReadYetError
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation, boot_clock
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup, layers, left_to_another
from aliquot.kubernetes.node_agent import pod_holders as holders
from aliquot.kubernetes.node_agent.agent_loop import INTERNAL_FAULT
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, Uses, held_by_pods

Boot = Callable[[], Awaitable[str]]
UNREAD: dict[str, FailureReason] = {"NO_DRIVER": "NoDriver", "DRIVER_HANGS": DRIVER_HANGS}
"""Reasons why GPUs cannot be read, by error code."""
NO_RECORD: FailureReason = "NoRecord"
"""The reason of a failure if the state file cannot be read or written."""


class Observer:
    """Builds observations.

    ``uses`` asks kubelet for the devices of pods; None without a kubelet. ``boot`` returns the id of this boot.
    ``last_settings`` are the last valid settings. ``planning`` is a context around the computation of each plan.
    """

    def __init__(self, node: AgentNode, setup: AgentSetup, uses: Uses | None, boot: Boot) -> None:
        self._node = node
        self._informer = node.informer
        self._hardware = node.hardware
        self._state_file = node.state_file
        self._setup = setup
        self._uses = uses
        self._boot = boot
        self.facts: Facts | None = None
        self.planning: Callable[[], AbstractContextManager[None]] = nullcontext
        # An observation follows each step, and most steps change neither the GPUs nor the request: reuse the plan.
        self._plan = Memoized(self._make_plan, 2)
        self.last_settings = LastSettings()
        self._settings_warnings = NewWarnings(log)
        self._reported_warnings: frozenset[str] = frozenset()

    async def observe(self, memory: AgentMemory) -> Observation:
        """Observe the node. Raises NotReadYetError until the node and the required ConfigMaps are read."""
        marks, node, managed = self._informer.marks, self._informer.node, self._setup.managed
        settings, settings_failure, warnings = self.settings()
        await self._report_warnings(warnings)
        unrecorded = self._state_file_failure()
        inventory, failure = await self._inventory()
        observation = Observation(
            node=self._informer.name,
            now=time.time(),
            clock=boot_clock(),
            boot=await self._boot(),
            marks=marks,
            settings=settings,
            durable=self._state_file.value,
            owner=self._node.owner,
            writer=self._node.writer,
            label=managed.requested(marks.labels, settings),
            state=marks.labels.get(managed.state, ""),
            status=parse(marks.annotations.get(names.STATUS_ANNOTATION)),
            inventory=inventory,
            failure=failure or unrecorded or settings_failure,
            unhealthy=self._hardware.unhealthy,
            settings_warnings=warnings,
            reserved=self._setup.reserved(marks),
            uid=node.metadata.uid if node is not None else "",
            hint="".join(f"; {sentence}" for sentence in near_misses(marks.labels, managed.name)),
            managed=managed,
            pod=self._setup.pod,
        )
        if observation.label is None or observation.failure is not None or inventory is None:
            return observation
        try:
            return await self._with_plan(observation, inventory, memory)
        except AliquotError as error:
            return msgspec.structs.replace(observation, failure=failure_of(error, "NotUnderstood"))
        except Exception as error:  # noqa: BLE001 -- a defect of Aliquot must not leave the node paused
            log.exception(INTERNAL_FAULT)
            return msgspec.structs.replace(observation, failure=internal_failure(error))

    def _state_file_failure(self) -> ConfigFailure | None:
        """Read the state file again after an error, and return the failure if there still is one."""
        if self._state_file.error is not None:
            self._state_file.refresh()
        error = self._state_file.error
        return failure_of(error, NO_RECORD) if error is not None else None

    def digest_of(self, observation: Observation) -> str:
        """Return the digest of the current request for the observed GPUs."""
        if observation.inventory is None:
            return observation.digest
        label = observation.managed.requested(self._informer.marks.labels, observation.settings)
        try:
            return (
                self._read_request(msgspec.structs.replace(observation, label=label), observation.inventory).digest
                if label is not None
                else ""
            )
        except KeyError:
            return observation.digest

    def settings(self) -> tuple[AgentSettings, ConfigFailure | None, tuple[str, ...]]:
        """Return the settings in use, the failure if a text was never valid, and warnings.

        A warning is about an invalid text whose last valid version stays in use.
        """
        known_layers, errors, warnings = layers(
            self._setup, self._informer.config_maps, self.last_settings, self._informer.marks.labels
        )
        managed, labels = self._setup.managed, self._informer.marks.labels
        settings = managed.settings(merge(known_layers))
        config_maps = self._setup.config_maps(settings, managed.requested(labels, settings) or "")
        self._informer.follow(config_maps)
        for name in config_maps:
            if not self._informer.has_read(name):
                raise NotReadYetError(name)
        self._settings_warnings.update((*warnings, *left_to_another(managed, known_layers, self._informer.namespace)))
        return settings, failure_of(errors[0], INVALID_SETTINGS) if errors else None, warnings

    async def _report_warnings(self, warnings: tuple[str, ...]) -> None:
        """Write an event for each new error in settings whose last valid text stays in use."""
        fresh, self._reported_warnings = set(warnings) - self._reported_warnings, frozenset(warnings)
        for sentence in sorted(fresh):
            await self._informer.events.warn(INVALID_SETTINGS, sentence)

    async def _inventory(self) -> tuple[Inventory | None, ConfigFailure | None]:
        try:
            inventory, self.facts = await self._hardware.read()
        except AliquotError as error:
            app = self._setup.managed.driver_pods
            if app and error.code == "NO_DRIVER":
                error.next_step = f"kubectl get pods -A -l app={app} -o wide"
            return None, failure_of(error, UNREAD.get(error.code, "GpusUnreadable"))
        if not inventory.gpus:
            return inventory, ConfigFailure("NoGpu", "this node has no NVIDIA GPU", (), "lspci -d 10de: on the node")
        return inventory, None

    async def _with_plan(self, observation: Observation, inventory: Inventory, memory: AgentMemory) -> Observation:
        request = self._read_request(observation, inventory)
        services, failure = self._services(observation.settings)
        if request.desired is None or failure is not None:
            return msgspec.structs.replace(observation, request=request, failure=failure)
        policy = Policy(reset=memory.no_reset != request.digest)
        plan = self._plan(inventory, request.desired, policy)
        kubelet_error, forced_plan, held = "", None, inventory
        if decision.touches(plan):
            uses, kubelet_error = await self._query_uses()
            plan = self._plan(held_by_pods(inventory, uses), request.desired, policy)
            if plan.blocked:
                held = held_by_pods(inventory, await self._informer.living_uses(uses))
                plan = self._plan(held, request.desired, policy)
                forced_plan = self._plan(held, request.desired, msgspec.structs.replace(policy, held="force"))
                if observation.holder_policy.policy == "force" and holders.blocked_by_processes_only(plan):
                    plan = forced_plan
        return msgspec.structs.replace(
            observation,
            request=request,
            plan=plan,
            forced_plan=forced_plan,
            kubelet_error=kubelet_error,
            held=held_devices(held) if forced_plan is not None else frozenset(),
            services=services,
            prediction=self._predict(observation, inventory, request.desired),
        )

    def _predict(self, observation: Observation, inventory: Inventory, desired: Desired) -> Prediction | None:
        """Predict what the agent will offer to containers; None if the devices are for VMs."""
        if observation.managed.for_vms:
            return None
        return predict(inventory, desired, observation.settings.strategy, self.facts, self._remedy())

    def _make_plan(self, inventory: Inventory, desired: Desired, policy: Policy) -> Plan:
        with self.planning():
            return make(inventory, desired, policy)

    def _remedy(self) -> Remedy:
        """Return the remedy for the MIG strategy: ClusterPolicy if the controller passes its strategy to the agents."""
        passed_on = (self._informer.config_maps.get(names.EFFECTIVE_MAP) or {}).get(names.SETTINGS_KEY, "")
        return cluster_policy if "strategy" in passed_on else settings_map(self._informer.namespace)

    async def _query_uses(self) -> tuple[Sequence[PodDeviceUse], str]:
        if self._uses is None:
            return (), ""
        try:
            return await self._uses(), ""
        except AliquotError as error:
            return (), f"the pods on the GPUs are unknown: {error.brief}"

    def _read_request(self, observation: Observation, inventory: Inventory) -> DesiredConfig:
        sources = self.sources(observation.settings, inventory)
        if observation.label and observation.label.startswith(names.OWN_PREFIX):
            own = self._setup.own_map
            sources = [
                *sources,
                config_map_source(f"{self._informer.namespace}/{own}", self._informer.config_maps.get(own)),
            ]
        return resolve(observation.label or "", sources, inventory, observation.reserved, observation.managed.name)

    def sources(self, settings: AgentSettings, inventory: Inventory) -> list[NamedConfigSource]:
        """Return the sources of named configs by precedence, without the node's own ConfigMap, which comes last."""
        namespace = self._informer.namespace
        if settings.config_map:
            return [
                config_map_source(f"{namespace}/{settings.config_map}", self._informer.config_maps[settings.config_map])
            ]
        if self._setup.config_file:
            return [_read_source(self._setup.config_file)]
        found = []
        try:
            text = generated(inventory, self._setup.managed)
            found.append(config_map_source(f"{namespace}/{self._setup.generated_map}", {DATA_KEY: text}))
        except BlockedError as error:
            found.append(NamedConfigSource("generated configs", None, error.brief))
        default_map = self._setup.managed.default_map
        fallback = self._informer.config_maps.get(default_map)
        if fallback is not None:
            found.append(config_map_source(f"{namespace}/{default_map}", fallback))
        elif self._setup.default_config_file:
            found.append(_read_source(self._setup.default_config_file))
        return found

    def _services(self, settings: AgentSettings) -> tuple[tuple[str, ...], ConfigFailure | None]:
        """Read the host's services to stop. They are read each time, so that edits apply from the next change on."""
        if not settings.stop_host_clients:
            return (), None
        try:
            text, source = self._clients(settings)
            return load_clients(text, source), None
        except AliquotError as error:
            return (), failure_of(error, "InvalidClients")

    def _clients(self, settings: AgentSettings) -> tuple[str | None, str]:
        name = settings.clients_map or names.DEFAULT_CLIENTS_MAP
        data = self._informer.config_maps.get(name)
        if data is None and not settings.clients_map and self._setup.clients_file:
            return _read_source(self._setup.clients_file).text, self._setup.clients_file
        if data is None:
            if settings.clients_map:
                raise BlockedError(
                    f"ConfigMap {self._informer.namespace}/{name} does not exist",
                    code="NO_CONFIG_MAP",
                    next_step=f"kubectl -n {self._informer.namespace} get configmaps",
                )
            return None, "the default list"
        if "clients.yaml" not in data:
            raise BlockedError(
                f"ConfigMap {self._informer.namespace}/{name} has no key clients.yaml",
                code="NO_CONFIG_MAP",
                next_step=f"kubectl -n {self._informer.namespace} edit configmap {name}",
            )
        return data["clients.yaml"], f"ConfigMap {self._informer.namespace}/{name}"


def _read_source(path: str) -> NamedConfigSource:
    try:
        with open(path, encoding="utf-8") as file:
            return NamedConfigSource(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return NamedConfigSource(path, None, f"{os.path.basename(path)} cannot be read from {path}: {why}")


def _generated(inventory: Inventory, managed: ManagedLabel) -> str:
    return to_yaml(managed.generate(inventory))


generated = Memoized(_generated)
"""Generate the named configs for these GPUs as a file. Cached, as every observation needs it. Raises BlockedError."""
