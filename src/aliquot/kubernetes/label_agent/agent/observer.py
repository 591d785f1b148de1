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
from aliquot.core.config.settings import Settings, merge
from aliquot.core.model.desired import Desired
from aliquot.core.model.facts import Facts
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.errors import AliquotError, BlockedError
from aliquot.foundation import lock
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import Source, Trouble, Wish, data_of, internal, read, trouble_of
from aliquot.kubernetes.gpu.misspellings import near_misses
from aliquot.kubernetes.gpu.node_status import parse
from aliquot.kubernetes.gpu.pause_owner import Owner
from aliquot.kubernetes.gpu.prediction import Remedy, cluster_policy, predict, settings_map
from aliquot.kubernetes.label_agent.agent import decide
from aliquot.kubernetes.label_agent.agent.affected_devices import held_devices
from aliquot.kubernetes.label_agent.agent.last_settings import LastSettings
from aliquot.kubernetes.label_agent.agent.memo import Kept
from aliquot.kubernetes.label_agent.agent.node_informer import Corner, NotReadYetError
from aliquot.kubernetes.label_agent.agent.observation import Memory, Observation, boot_clock
from aliquot.kubernetes.label_agent.agent.settings import Place, layers
from aliquot.kubernetes.label_agent.agent.state_file import Record
from aliquot.kubernetes.node_agent import pod_holders as holders
from aliquot.kubernetes.node_agent.gpu_worker import Hardware
from aliquot.kubernetes.node_agent.messages import DRIVER_HANGS
from aliquot.kubernetes.node_agent.pod_holders import Use, held_by_pods

Uses = Callable[[], Awaitable[Sequence[Use]]]
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
        self, corner: Corner, hardware: Hardware, record: Record, place: Place, uses: Uses | None, boot: Boot
    ) -> None:
        self._corner = corner
        self._hardware = hardware
        self._record = record
        self._place = place
        self._uses = uses
        self._boot = boot
        self.facts: Facts | None = None
        self.owner = Owner()
        self.change_lock = ""
        self.planning: Callable[[], AbstractContextManager[None]] = nullcontext
        # A look follows each step, and most of them change neither the GPUs nor the wish: what was planned still holds.
        self._plan = Kept(self._planned, 2)
        self.last_settings = LastSettings()
        self._unclear: tuple[str, ...] = ()
        self._reported: frozenset[str] = frozenset()

    async def look(self, m: Memory) -> Observation:
        """One look. Raises NotReadYetError while the node or a ConfigMap that matters was not read yet."""
        marks, node = self._corner.marks, self._corner.node
        settings, unclear, faults = self.settings()
        await self._report(faults)
        if self._record.fault is not None:
            self._record.refresh()
        if self._record.fault is not None:
            unclear = trouble_of(self._record.fault, NO_RECORD)
        inventory, trouble = await self._inventory()
        o = Observation(
            node=self._corner.name,
            now=time.time(),
            clock=boot_clock(),
            boot=await self._boot(),
            marks=marks,
            settings=settings,
            durable=self._record.value,
            owner=self.owner,
            writer=lock.holder(self.change_lock),
            label=marks.labels.get(names.CONFIG_LABEL),
            state=marks.labels.get(names.STATE_LABEL, ""),
            status=parse(marks.annotations.get(names.STATUS_ANNOTATION)),
            inventory=inventory,
            trouble=trouble or unclear,
            unhealthy=self._hardware.unhealthy,
            unclear=faults,
            reserved=self._place.reserved(marks),
            uid=node.metadata.uid if node is not None else "",
            hint="".join(f"; {sentence}" for sentence in near_misses(marks.labels)),
        )
        if o.label is None or o.trouble is not None or inventory is None:
            return o
        try:
            return await self._wished(o, inventory, m)
        except AliquotError as error:
            return msgspec.structs.replace(o, trouble=trouble_of(error, "NotUnderstood"))
        except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave the node paused
            log.exception("internal fault: report this, with the output of: aliquot version")
            return msgspec.structs.replace(o, trouble=internal(error))

    def digest_of(self, o: Observation) -> str:
        """The digest of what is wished now, of the GPUs that were seen last."""
        if o.inventory is None:
            return o.digest
        label = self._corner.marks.labels.get(names.CONFIG_LABEL)
        try:
            return self._wish(msgspec.structs.replace(o, label=label), o.inventory).digest if label is not None else ""
        except KeyError:
            return o.digest

    def settings(self) -> tuple[Settings, Trouble | None, tuple[str, ...]]:
        """The settings that hold; what is wrong with a text that never was right; and sentences about one whose last
        good version holds.
        """
        said, faults, unclear = layers(self._place, self._corner.maps, self.last_settings, self._corner.marks.labels)
        settings = merge(said)
        maps = self._place.maps(settings, self._corner.marks.labels.get(names.CONFIG_LABEL, ""))
        self._corner.follow(maps)
        for name in maps:
            if not self._corner.read(name):
                raise NotReadYetError(name)
        for sentence in set(unclear) - set(self._unclear):
            log.warning("%s", sentence)
        self._unclear = unclear
        return settings, trouble_of(faults[0], INVALID_SETTINGS) if faults else None, unclear

    async def _report(self, faults: tuple[str, ...]) -> None:
        """Write an event for each fault in settings whose last good text holds, once."""
        fresh, self._reported = set(faults) - self._reported, frozenset(faults)
        for sentence in sorted(fresh):
            await self._corner.warn(INVALID_SETTINGS, sentence)

    async def _inventory(self) -> tuple[Inventory | None, Trouble | None]:
        try:
            inventory, self.facts = await self._hardware.read()
        except AliquotError as error:
            return None, trouble_of(error, UNREAD.get(error.code, "GpusUnreadable"))
        if not inventory.gpus:
            return inventory, Trouble("NoGpu", "this node has no NVIDIA GPU", (), "lspci -d 10de: on the node")
        return inventory, None

    async def _wished(self, o: Observation, inventory: Inventory, m: Memory) -> Observation:
        wish = self._wish(o, inventory)
        services, trouble = self._services(o.settings)
        if wish.desired is None or trouble is not None:
            return msgspec.structs.replace(o, wish=wish, trouble=trouble)
        quiet = Policy(reset=m.no_reset != wish.digest)
        plan = self._plan(inventory, wish.desired, quiet)
        blind, forced, held = "", None, inventory
        if decide.touches(plan):
            uses, blind = await self._who()
            plan = self._plan(held_by_pods(inventory, uses), wish.desired, quiet)
            if plan.blocked:
                held = held_by_pods(inventory, await self._corner.living(uses))
                plan = self._plan(held, wish.desired, quiet)
                forced = self._plan(held, wish.desired, msgspec.structs.replace(quiet, held="force"))
                plan = forced if _may_force(o, plan) else plan
        return msgspec.structs.replace(
            o,
            wish=wish,
            plan=plan,
            forced=forced,
            blind=blind,
            held=held_devices(held) if forced is not None else frozenset(),
            services=services,
            prediction=predict(inventory, wish.desired, o.settings.strategy, self.facts, self._remedy()),
        )

    def _planned(self, inventory: Inventory, desired: Desired, policy: Policy) -> Plan:
        with self.planning():
            return make(inventory, desired, policy)

    def _remedy(self) -> Remedy:
        """How a person changes the strategy here: in ClusterPolicy where the controller passes one on."""
        passed_on = (self._corner.maps.get(names.EFFECTIVE_MAP) or {}).get(names.SETTINGS_KEY, "")
        return cluster_policy if "strategy" in passed_on else settings_map(self._corner.namespace)

    async def _who(self) -> tuple[Sequence[Use], str]:
        if self._uses is None:
            return (), ""
        try:
            return await self._uses(), ""
        except AliquotError as error:
            return (), f"kubelet cannot say which pods are on the GPUs: {error.brief}"

    def _wish(self, o: Observation, inventory: Inventory) -> Wish:
        sources = self.sources(o.settings, inventory)
        if o.label and o.label.startswith(names.OWN_PREFIX):
            own = self._place.own_map
            sources = [*sources, data_of(f"{self._corner.namespace}/{own}", self._corner.maps.get(own))]
        return read(o.label or "", sources, inventory, o.reserved)

    def sources(self, settings: Settings, inventory: Inventory) -> list[Source]:
        """Where named configs are written, first the one that decides; without the node's own ConfigMap, which comes
        last.
        """
        namespace = self._corner.namespace
        if settings.config_map:
            return [data_of(f"{namespace}/{settings.config_map}", self._corner.maps[settings.config_map])]
        if self._place.config_file:
            return [_file(self._place.config_file)]
        found = []
        try:
            found.append(Source(f"ConfigMap {namespace}/{self._place.generated_map}", generated(inventory)))
        except BlockedError as error:
            found.append(Source("generated configs", None, error.brief))
        fallback = self._corner.maps.get(names.DEFAULT_CONFIG_MAP)
        if fallback is not None:
            found.append(data_of(f"{namespace}/{names.DEFAULT_CONFIG_MAP}", fallback))
        elif self._place.default_config_file:
            found.append(_file(self._place.default_config_file))
        return found

    def _services(self, settings: Settings) -> tuple[tuple[str, ...], Trouble | None]:
        """The host's services to stop, read afresh: an edited list counts from the next change on."""
        if not settings.stop_host_clients:
            return (), None
        try:
            text, source = self._clients(settings)
            return load_clients(text, source), None
        except AliquotError as error:
            return (), trouble_of(error, "InvalidClients")

    def _clients(self, settings: Settings) -> tuple[str | None, str]:
        name = settings.clients_map or names.DEFAULT_CLIENTS_MAP
        data = self._corner.maps.get(name)
        if data is None and not settings.clients_map and self._place.clients_file:
            return _file(self._place.clients_file).text, self._place.clients_file
        if data is None:
            if settings.clients_map:
                raise BlockedError(f"ConfigMap {self._corner.namespace}/{name} does not exist")
            return None, "the default list"
        if "clients.yaml" not in data:
            raise BlockedError(f"ConfigMap {self._corner.namespace}/{name} has no key clients.yaml")
        return data["clients.yaml"], f"ConfigMap {self._corner.namespace}/{name}"


def _may_force(o: Observation, plan: Plan) -> bool:
    """With the policy ``force``, and no pod left in the way, processes end too. The plan still knows every pod: it must
    not take an instance of one that is not in the way.
    """
    return o.holding.policy == "force" and holders.held_only(plan) and not holders.pods_in_the_way(plan)


def _file(path: str) -> Source:
    try:
        with open(path, encoding="utf-8") as file:
            return Source(path, file.read())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        return Source(path, None, f"{os.path.basename(path)} cannot be read from {path}: {why}")


def _generated(inventory: Inventory) -> str:
    return to_yaml(generate(inventory))


generated = Kept(_generated)
"""The named configs that these GPUs call for, as a file. Every look asks. Raises BlockedError."""
