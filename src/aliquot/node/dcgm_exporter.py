"""Utilization of GPU instances from the page of a dcgm-exporter, for GPUs whose driver does not report it (Ampere).

``DCGM_FI_PROF_GR_ENGINE_ACTIVE`` is the share of time in which any engine computed, labelled with the GPU's UUID and
the GPU instance's id (``GPU_I_ID``). The exporter reads it every half minute, so it describes a moment, and not the
time between two samples.
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import DCGM, Usage
from aliquot.errors import UsageError
from aliquot.foundation.callbacks import Report

METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
WAIT_S = 2.0
_MOST_BYTES = 16 << 20
_LINE = re.compile(rf"^{METRIC}\{{([^}}]*)\}} +([0-9.eE+-]+)(?: |$)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')

Shares = dict[tuple[str, int], float]
"""Shares by the GPU's UUID and the GPU instance's id."""


class DcgmExporter:
    """The page of an exporter. ``report`` gets a sentence when it cannot be read, once until it can be read again.
    Raises UsageError for an invalid address.
    """

    def __init__(self, url: str, report: Report = lambda _: None) -> None:
        if not re.match(r"https?://[^/\s]+", url):
            raise UsageError(
                f"{url!r} is not the address of a dcgm-exporter's page",
                next_step="aliquot usage --dcgm http://127.0.0.1:9400/metrics",
            )
        self._url = url
        self._report = report
        self._failure = ""

    def fill(self, inventory: Inventory, usage: tuple[Usage, ...]) -> tuple[Usage, ...]:
        """Fill in the exporter's shares for GPU instances that have none. The page is read only if there is such an
        instance.
        """
        if all(u.compute is not None or u.instance is None for u in usage):
            return usage
        by_instance, uuids = self._shares(), {gpu.pci: gpu.uuid for gpu in inventory.gpus}
        return tuple(_filled(each, uuids.get(each.gpu, ""), by_instance) for each in usage)

    def _shares(self) -> Shares:
        from http.client import HTTPException

        try:
            found = shares(self._page())
        except (OSError, HTTPException, ValueError) as error:  # ValueError: an invalid address
            failure = f"no shares from {self._url}: {getattr(error, 'reason', error)}"
        else:
            failure = "" if found else f"no shares from {self._url}: it has no {METRIC} of a GPU instance"
        if failure and failure != self._failure:
            self._report(failure)
        self._failure = failure
        return {} if failure else found

    def _page(self) -> str:
        from urllib.request import ProxyHandler, build_opener

        with build_opener(ProxyHandler({})).open(self._url, timeout=WAIT_S) as answer:
            page: bytes = answer.read(_MOST_BYTES)
        return page.decode(errors="replace")


def shares(page: str) -> Shares:
    """Return the shares of GPU instances on a page. A value outside 0 to 1 is omitted."""
    found: Shares = {}
    for match in _LINE.finditer(page):
        labels = dict(_LABEL.findall(match[1]))
        instance = labels.get("GPU_I_ID", "")
        try:
            share = float(match[2])
        except ValueError:
            continue
        if instance.isdigit() and 0 <= share <= 1:
            found[labels.get("UUID", ""), int(instance)] = share
    return found


def _filled(usage: Usage, uuid: str, by_instance: Shares) -> Usage:
    share = by_instance.get((uuid, usage.instance)) if usage.instance is not None else None
    if usage.compute is not None or share is None:
        return usage
    return msgspec.structs.replace(usage, compute=round(share, 4), source=DCGM)
