"""A metric: one row of the table in ``registry``."""

from __future__ import annotations

import msgspec

GAUGE, COUNTER, HISTOGRAM, INFO = TYPES = ("gauge", "counter", "histogram", "info")

AGENT, DEVICES, CLAIMS, HOST = "agent", "devices agent", "claim agent", "metrics"
CONTROLLER, SLURM, DASHBOARD = "controller", "Slurm controller", "dashboard"
PROCESSES = {
    AGENT: "`aliquot agent`",
    DEVICES: "`aliquot agent --devices`",
    CLAIMS: "`aliquot agent --claims`",
    HOST: "`aliquot metrics`",
    CONTROLLER: "`aliquot controller`",
    SLURM: "`aliquot slurm controller`",
    DASHBOARD: "`aliquot dashboard`",
}
"""The processes that have a page, and their commands."""

_UNITS = ("seconds", "bytes", "ratio")


class Metric(msgspec.Struct, frozen=True):
    """A row of the table."""

    name: str
    """The name in queries: a counter ends in ``_total``; an info, always 1 with its values in labels, in ``_info``. A
    histogram is followed by ``_bucket``, ``_sum`` and ``_count``.
    """
    type: str
    help: str
    by: tuple[str, ...]
    """The processes whose pages have it."""
    labels: tuple[str, ...] = ()
    """Labels in the order in which values are given."""

    @property
    def unit(self) -> str:
        """The base unit that the name ends in, "" for a count or a flag."""
        bare = self.name.removesuffix("_total")
        return next((unit for unit in _UNITS if bare.endswith(f"_{unit}")), "")


def gauge(name: str, help: str, by: tuple[str, ...], labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, GAUGE, help, by, labels)


def counter(name: str, help: str, by: tuple[str, ...], labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, COUNTER, help, by, labels)


def histogram(name: str, help: str, by: tuple[str, ...], labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, HISTOGRAM, help, by, labels)


def info(name: str, help: str, by: tuple[str, ...], labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, INFO, help, by, labels)
