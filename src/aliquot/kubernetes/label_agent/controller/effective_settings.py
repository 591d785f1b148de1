"""Settings of the whole cluster, read from ClusterPolicy and Aliquot's ConfigMap, and published for the agents."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aliquot.core.config import settings, settings_text
from aliquot.core.config.settings import AgentSettings, Layer
from aliquot.errors import AliquotError
from aliquot.foundation.logfmt import controller_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ConflictError, NotFoundError
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import ClusterPolicy, ConfigMap
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.label_agent.controller import cluster_policy_settings as settings_from
from aliquot.kubernetes.label_agent.controller.cluster_policy_settings import PolicySettings
from aliquot.metrics.controller_metrics import ControllerMetrics

NOTES_KEY = "notes"
_UNKNOWN = Layer("unknown settings", {"default_config": "", "hints": False})


def read_cluster_policy(policies: Iterable[ClusterPolicy]) -> PolicySettings:
    """Read the settings of the cluster's ClusterPolicy."""
    policy = settings_from.choose_policy(policies)
    return PolicySettings(Layer("no ClusterPolicy")) if policy is None else settings_from.read_policy(policy)


class MergedSettings:
    """Settings of all nodes: those of ClusterPolicy override those of the settings ConfigMap."""

    def __init__(self) -> None:
        self._last = _UNKNOWN

    def read(self, policy: PolicySettings, found: ConfigMap | None) -> tuple[AgentSettings, tuple[str, ...]]:
        """Return the settings in use, and the errors of the settings ConfigMap.

        If the ConfigMap is invalid, its last valid settings stay in use. Until it was valid once, no node gets a named
        config, and no pod gets a hint.
        """
        text = found.data.get(names.SETTINGS_KEY, "") if found is not None else ""
        errors: tuple[str, ...] = ()
        try:
            self._last = settings_text.read(text, f"ConfigMap {names.SETTINGS_MAP}")
        except AliquotError as error:
            errors = error.details or (error.brief,)
        return settings.merge((self._last, policy.layer)), errors


class EffectiveSettingsPublisher:
    """Publisher of the effective ConfigMap, whose current state is in ``informer``."""

    def __init__(self, api: Api, informer: Informer[ConfigMap], metrics: ControllerMetrics) -> None:
        self._api, self._informer, self._metrics = api, informer, metrics

    async def publish(self, policy: PolicySettings, errors: tuple[str, ...]) -> bool:
        """Write the settings of ClusterPolicy to the effective ConfigMap. Returns False if it must be retried.

        The agents read the settings ConfigMap themselves, so that its settings apply even if no controller runs.
        """
        notes = "".join(f"{sentence}\n" for sentence in (*policy.notes, *errors))
        data = {names.SETTINGS_KEY: settings_text.to_text(policy.layer)} | ({NOTES_KEY: notes} if notes else {})
        found = next(iter(self._informer.items), None)
        if found is None and not policy.layer.values and not notes:
            return True
        if found is not None and found.data == data:
            return True
        body = _effective(data, found)
        log.info("publishing the settings of %s in ConfigMap %s", policy.layer.source, names.EFFECTIVE_MAP)
        try:
            if found is None:
                written = await self._api.create(ConfigMap, body)
            else:
                written = await self._api.patch(ConfigMap, names.EFFECTIVE_MAP, body)
        except (ConflictError, NotFoundError):
            return False
        except ApiError as error:
            log.warning("%s", "; ".join((error.brief, *error.details)))
            self._metrics.count_failure("settings")
            return False
        self._informer.record_write(found, written)
        self._metrics.count_write("settings")
        return True


def _effective(data: dict[str, str], found: ConfigMap | None) -> dict[str, Any]:
    """Build the ConfigMap, or the merge patch for it, which removes stale keys."""
    stale = {key: None for key in (found.data if found is not None else {}) if key not in data}
    labels = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "controller"}
    return {"metadata": {"name": names.EFFECTIVE_MAP, "labels": labels}, "data": data | stale}
