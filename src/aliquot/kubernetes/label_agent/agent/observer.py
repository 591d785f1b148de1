"""Looking: everything that a decision needs, gathered into one frozen observation."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import msgspec

from aliquot.core.config.formats.gpu_clients import load_clients
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.generate import generate
from aliquot.core.config.settings import AgentSettings, merge
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation import lock
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import (
    ConfigFailure,
    DesiredConfig,
    NamedConfigSource,
    config_map_source,
    failure_of,
    internal_failure,
    resolve,
)
from aliquot.kubernetes.gpu.misspellings import near_misses
from aliquot.kubernetes.gpu.node_status import parse
from aliquot.kubernetes.gpu.pause_owner import PauseOwner
from aliquot.kubernetes.gpu.prediction import Remedy, cluster_policy, predict, settings_map
from aliquot.kubernetes.label_agent.agent import decision
from aliquot.kubernetes.label_agent.agent.affected_devices import held_devices
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings
from aliquot.kubernetes.label_agent.agent.memo import Memoized
from aliquot.kubernetes.label_agent.agent.node_informer import NodeInformer, NotReadYetError
from aliquot.kubernetes.label_agent.agent.observation import AgentMemory, Observation, boot_clock
from aliquot.kubernetes.label_agent.agent.settings import AgentSetup, layers
from aliquot.kubernetes.label_agent.agent.state_file import AgentStateFile
from aliquot.kubernetes.node_agent import pod_holders as holders
from aliquot.kubernetes.node_agent.agent_loop import INTERNAL_FAULT
from aliquot.kubernetes.node_agent.gpu_worker import GpuWorker
from aliquot.kubernetes.node_agent.messages import DRIVER_HANGS
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, Uses, held_by_pods

Boot = Callable[[], Awaitable[str]]
UNREAD = {"NO_DRIVER": "NoDriver", "DRIVER_HANGS": DRIVER_HANGS}
"""Why GPUs cannot be read, by the error's code."""
INVALID_SETTINGS = "InvalidSettings"
"""The reason of an event about settings whose last good text holds, and of a failure where there is none."""
NO_RECORD = "NoRecord"
"""The reason of a failure for want of a record that outlives the agent."""


class Observer:
    """Gathers observations. ``uses`` asks kubelet who is on what; None where there is no kubelet to ask;
    ``boot`` tells the id of this boot. ``last_settings`` are the settings that could be understood last. ``planning``
    is entered around each plan that is made. ``owner`` is this agent, ``change_lock`` the path of the node's change
    lock.
    """

    def __init__(
        self,
        informer: NodeInformer,
        hardware: GpuWorker,
        state_file: AgentStateFile,
        setup: AgentSetup,
        uses: Uses | None,
        boot: Boot,
    ) -> None:
        self._informer = informer
        self._hardware = hardware
        self._state_file = state_file
        self._setup = setup
        self._uses = uses
        self._boot = boot
        self.facts: Facts | None = None
        self.owner = PauseOwner()
        self.change_lock = ""
        self.planning: Callable[[], AbstractContextManager[None]] = nullcontext
        # A look follows each step, and most of them change neither the GPUs nor the wish: what was planned still holds.
        self._plan = Memoized(self._make_plan, 2)
        self.last_settings = LastSettings()
        self._settings_warnings: tuple[str, ...] = ()
        self._reported_warnings: frozenset[str] = frozenset()

    async def observe(self, memory: AgentMemory) -> Observation:
        """One look. Raises NotReadYetError while the node or a ConfigMap that matters was not read yet."""
        marks, node = self._informer.marks, self._informer.node
        settings, settings_failure, warnings = self.settings()
        await self._report_warnings(warnings)
        if self._state_file.error is not None:
            self._state_file.refresh()
        if self._state_file.error is not None:
            settings_failure = failure_of(self._state_file.error, NO_RECORD)
        inventory, failure = await self._inventory()
        observation = Observation(
            node=self._informer.name,
            now=time.time(),
            clock=boot_clock(),
            boot=await self._boot(),
            marks=marks,
            settings=settings,
            durable=self._state_file.value,
            owner=self.owner,
            writer=lock.holder(self.change_lock),
            label=marks.labels.get(names.CONFIG_LABEL),
            state=marks.labels.get(names.STATE_LABEL, ""),
            status=parse(marks.annotations.get(names.STATUS_ANNOTATION)),
            inventory=inventory,
            failure=failure or settings_failure,
            unhealthy=self._hardware.unhealthy,
            settings_warnings=warnings,
            reserved=self._setup.reserved(marks),
            uid=node.metadata.uid if node is not None else "",
            hint="".join(f"; {sentence}" for sentence in near_misses(marks.labels)),
        )
        if observation.label is None or observation.failure is not None or inventory is None:
            return observation
        try:
            return await self._with_plan(observation, inventory, memory)
        except AliquotError as error:
            return msgspec.structs.replace(observation, failure=failure_of(error, "NotUnderstood"))
        except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave the node paused
            log.exception(INTERNAL_FAULT)
            return msgspec.structs.replace(observation, failure=internal_failure(error))

    def digest_of(self, observation: Observation) -> str:
        """The digest of what is wished now, of the GPUs that were seen last."""
        if observation.inventory is None:
            return observation.digest
        label = self._informer.marks.labels.get(names.CONFIG_LABEL)
        try:
            return (
                self._read_request(msgspec.structs.replace(observation, label=label), observation.inventory).digest
                if label is not None
                else ""
            )
        except KeyError:
            return observation.digest

    def settings(self) -> tuple[AgentSettings, ConfigFailure | None, tuple[str, ...]]:
        """The settings that hold; what is wrong with a text that never was right; and sentences about one whose last
        good version holds.
        """
        known_layers, errors, warnings = layers(
            self._setup, self._informer.config_maps, self.last_settings, self._informer.marks.labels
        )
        settings = merge(known_layers)
        config_maps = self._setup.config_maps(settings, self._informer.marks.labels.get(names.CONFIG_LABEL, ""))
        self._informer.follow(config_maps)
        for name in config_maps:
            if not self._informer.has_read(name):
                raise NotReadYetError(name)
        for sentence in set(warnings) - set(self._settings_warnings):
            log.warning("%s", sentence)
        self._settings_warnings = warnings
        return settings, failure_of(errors[0], INVALID_SETTINGS) if errors else None, warnings

    async def _report_warnings(self, warnings: tuple[str, ...]) -> None:
        """Write an event for each fault in settings whose last good text holds, once."""
        fresh, self._reported_warnings = set(warnings) - self._reported_warnings, frozenset(warnings)
        for sentence in sorted(fresh):
            await self._informer.warn(INVALID_SETTINGS, sentence)

    async def _inventory(self) -> tuple[Inventory | None, ConfigFailure | None]:
        try:
            inventory, self.facts = await self._hardware.read()
        except AliquotError as error:
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
                plan = forced_plan if _may_force(observation, plan) else plan
        return msgspec.structs.replace(
            observation,
            request=request,
            plan=plan,
            forced_plan=forced_plan,
            kubelet_error=kubelet_error,
            held=held_devices(held) if forced_plan is not None else frozenset(),
            services=services,
            prediction=predict(inventory, request.desired, observation.settings.strategy, self.facts, self._remedy()),
        )

    def _make_plan(self, inventory: Inventory, desired: Desired, policy: Policy) -> Plan:
        with self.planning():
            return make(inventory, desired, policy)

    def _remedy(self) -> Remedy:
        """How a person changes the strategy here: in ClusterPolicy where the controller passes one on."""
        passed_on = (self._informer.config_maps.get(names.EFFECTIVE_MAP) or {}).get(names.SETTINGS_KEY, "")
        return cluster_policy if "strategy" in passed_on else settings_map(self._informer.namespace)

    async def _query_uses(self) -> tuple[Sequence[PodDeviceUse], str]:
        if self._uses is None:
            return (), ""
        try:
            return await self._uses(), ""
        except AliquotError as error:
            return (), f"kubelet cannot say which pods are on the GPUs: {error.brief}"

    def _read_request(self, observation: Observation, inventory: Inventory) -> DesiredConfig:
        sources = self.sources(observation.settings, inventory)
        if observation.label and observation.label.startswith(names.OWN_PREFIX):
            own = self._setup.own_map
            sources = [
                *sources,
                config_map_source(f"{self._informer.namespace}/{own}", self._informer.config_maps.get(own)),
            ]
        return resolve(observation.label or "", sources, inventory, observation.reserved)

    def sources(self, settings: AgentSettings, inventory: Inventory) -> list[NamedConfigSource]:
        """Where named configs are written, first the one that decides; without the node's own ConfigMap, which comes
        last.
        """
        namespace = self._informer.namespace
        if settings.config_map:
            return [
                config_map_source(f"{namespace}/{settings.config_map}", self._informer.config_maps[settings.config_map])
            ]
        if self._setup.config_file:
            return [_read_source(self._setup.config_file)]
        found = []
        try:
            found.append(NamedConfigSource(f"ConfigMap {namespace}/{self._setup.generated_map}", generated(inventory)))
        except BlockedError as error:
            found.append(NamedConfigSource("generated configs", None, error.brief))
        fallback = self._informer.config_maps.get(names.DEFAULT_CONFIG_MAP)
        if fallback is not None:
            found.append(config_map_source(f"{namespace}/{names.DEFAULT_CONFIG_MAP}", fallback))
        elif self._setup.default_config_file:
            found.append(_read_source(self._setup.default_config_file))
        return found

    def _services(self, settings: AgentSettings) -> tuple[tuple[str, ...], ConfigFailure | None]:
        """The host's services to stop, read afresh: an edited list counts from the next change on."""
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
                raise BlockedError(f"ConfigMap {self._informer.namespace}/{name} does not exist")
            return None, "the default list"
        if "clients.yaml" not in data:
            raise BlockedError(f"ConfigMap {self._informer.namespace}/{name} has no key clients.yaml")
        return data["clients.yaml"], f"ConfigMap {self._informer.namespace}/{name}"


def _may_force(observation: Observation, plan: Plan) -> bool:
    """With the policy ``force``, and no pod left in the way, processes end too. The plan still knows every pod: it must
    not take an instance of one that is not in the way.
    """
    return (
        observation.holder_policy.policy == "force"
        and holders.blocked_by_holders_only(plan)
        and not holders.blocking_pods(plan)
    )


def _read_source(path: str) -> NamedConfigSource:
    try:
        with open(path, encoding="utf-8") as file:
            return NamedConfigSource(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return NamedConfigSource(path, None, f"{os.path.basename(path)} cannot be read from {path}: {why}")


def _generated(inventory: Inventory) -> str:
    return to_yaml(generate(inventory))


generated = Memoized(_generated)
"""The named configs that these GPUs call for, as a file. Every look asks. Raises BlockedError."""
