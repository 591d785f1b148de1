"""Parser of the controller's settings, a YAML file. It reports all errors at once, with their locations.

``
version: aliquot-slurm/v1
records:
- nodes: gpu[01-04]
  reach: ssh {host}                 # words before 'aliquot'; "" for this host
  options: [--conf-dir, /etc/slurm] # added to every 'aliquot slurm apply' there
  profiles: [1g.5gb, 3g.20gb]       # the profiles that may be created
  keep: {1g.5gb: 2}
  idle: 10
partitions:
  train: {profiles: [3g.20gb]}
  debug: {demands: false}
limits: {changes-per-hour: 60}
``
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from aliquot.core.config.text import yaml_nodes as yaml
from aliquot.core.config.text.node_reader import Field, YamlReader, catalog_names, describe_node, did_you_mean
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar
from aliquot.errors import AliquotError, ConfigError
from aliquot.slurm.conf import hostlist
from aliquot.slurm.controller.settings import (
    BOARD_LIMITS,
    VERSION,
    WHOLE,
    Limits,
    ManagedNode,
    PartitionRules,
    Rules,
    SlurmControllerSettings,
    default_settings,
)
from aliquot.slurm.gpus.gres_types import STYLES

_TOP = ("version", "records", "partitions", "layouts", "limits", "placeholders", "type-style", "history", "listen")
_RULES = ("profiles", "keep", "most", "fill", "modes", "untouched")
_LIMITS = ("idle", "between", "changes-per-hour", "patience")
_NODE_KEYS = ("nodes", "reach", "host", "options", "way", "slots", *_RULES, *_LIMITS)
_CLUSTER = ("interval", "changes-per-hour", "at-once", "promise", "change")
_PARTITION = ("demands", "profiles", "keep", "most")
_LONGEST_S = 30 * 86400.0
T = TypeVar("T")
Word = TypeVar("Word", bound=str)


def load(text: str, source: str) -> SlurmControllerSettings:
    """Parse the settings. Raises ConfigError with all errors, each as ``source:line:column: ...``."""
    document = yaml.read(text, source)
    if not isinstance(document.root, Map):
        raise ConfigError(f"{source} is not a settings file: it needs a mapping with 'version' and 'records'")
    reading = _Reading(source)
    reading.duplicates(document)
    settings = reading.top(document.root)
    reading.diagnostics.check()
    return settings


class _Reading(YamlReader):
    def top(self, root: Map) -> SlurmControllerSettings:
        fields = self.mapping(root, "the file") or {}
        self.check_keys(fields, _TOP, "the file")
        version = fields.get("version")
        if version is None or not isinstance(version[1], Scalar) or version[1].value != VERSION:
            self.diagnostics.add(version[1] if version else root, f"the file must say version: {VERSION}")
        hosts = self.node_entries(fields["records"][1]) if "records" in fields else ()
        if "records" not in fields:
            self.diagnostics.add(root, "the key 'records' is missing: list the nodes that may be repartitioned")
        cluster = self._group(fields, "limits", _CLUSTER)
        usual = default_settings(hosts)
        return SlurmControllerSettings(
            hosts=hosts,
            partitions=self._each(fields, "partitions", self.partition),
            layouts=self._each(fields, "layouts", lambda name, node: self.counts(node, f"the layout {name!r}")),
            style=self.choice(fields, "type-style", STYLES, usual.style),
            placeholders=self.flag(fields, "placeholders", usual.placeholders),
            interval_s=self.seconds(cluster, "interval", usual.interval_s, least=0.1),
            per_hour=self.whole(cluster, "changes-per-hour", usual.per_hour),
            at_once=self.whole(cluster, "at-once", usual.at_once),
            promise_s=self.seconds(cluster, "promise", usual.promise_s),
            apply_s=self.seconds(cluster, "change", usual.apply_s, least=1.0),
            history=self.word(fields, "history", usual.history),
            listen=self.listen(fields),
        )

    def node_entries(self, node: Node) -> tuple[ManagedNode, ...]:
        found: list[ManagedNode] = []
        seen: set[str] = set()
        for item in self.entries(node, "'records'"):
            fields = self.mapping(item, "an entry of 'records'")
            if fields is None:
                continue
            self.check_keys(fields, _NODE_KEYS, "an entry of 'records'")
            if "nodes" not in fields:
                self.diagnostics.add(item, "the entry lacks the key 'nodes' (names in Slurm, for example gpu[01-04])")
                continue
            self.way(fields)
            slots = self.flag(fields, "slots", False)
            rules, limits = self.rules(fields), self.limits(fields, BOARD_LIMITS if slots else Limits())
            names = self.names(fields["nodes"][1])
            for name in names:
                if name in seen:
                    self.diagnostics.add(fields["nodes"][1], f"the node {name} is in two entries")
                seen.add(name)
            options = self.options(fields)
            found += [ManagedNode(name, self.reach(fields, name), options, rules, limits, slots) for name in names]
        return tuple(found)

    def way(self, fields: dict[str, Field]) -> None:
        """Report an entry of a release that had CLOUD records. ``way: dynamic`` has no effect, because all are so."""
        if self.word(fields, "way", "dynamic") != "dynamic":
            sentence = "Aliquot has no CLOUD records any more: make the host one node of slurm.conf with a slot board"
            self.diagnostics.add(fields["way"][1], f"{sentence} (aliquot slurm apply --slots)")

    def names(self, node: Node) -> tuple[str, ...]:
        out: list[str] = []
        for at, text in self.texts(node, "'nodes'"):
            try:
                out += hostlist.expand(text)
            except AliquotError as error:
                self.diagnostics.add(at, error.brief)
        return tuple(out)

    def rules(self, fields: dict[str, Field]) -> Rules:
        return Rules(
            profiles=self.profiles(fields, "profiles"),
            keep=self.counts(fields["keep"][1], "'keep'") if "keep" in fields else {},
            most=self.counts(fields["most"][1], "'most'") if "most" in fields else {},
            fill=self.profiles(fields, "fill") or (),
            modes=self.flag(fields, "modes", False),
            untouched=self.flag(fields, "untouched", False),
        )

    def limits(self, fields: dict[str, Field], usual: Limits) -> Limits:
        patience = fields.get("patience")
        never = patience is not None and isinstance(patience[1], Scalar) and patience[1].value == "never"
        return Limits(
            idle_s=self.seconds(fields, "idle", usual.idle_s),
            between_s=self.seconds(fields, "between", usual.between_s),
            per_hour=self.whole(fields, "changes-per-hour", usual.per_hour),
            patience_s=None if never else self.seconds(fields, "patience", 0.0) if patience else usual.patience_s,
        )

    def partition(self, name: str, node: Node) -> PartitionRules:
        what = f"the partition {name!r}"
        fields = self.mapping(node, what) or {}
        self.check_keys(fields, _PARTITION, what)
        return PartitionRules(
            demands=self.flag(fields, "demands", True),
            profiles=self.profiles(fields, "profiles"),
            keep=self.counts(fields["keep"][1], "'keep'") if "keep" in fields else {},
            most=self.counts(fields["most"][1], "'most'") if "most" in fields else {},
        )

    # -- values

    def profiles(self, fields: dict[str, Field], key: str) -> tuple[str, ...] | None:
        if key not in fields:
            return None
        return tuple(text for at, text in self.texts(fields[key][1], f"{key!r}") if self._profile(at, text))

    def counts(self, node: Node, what: str) -> dict[str, int]:
        out: dict[str, int] = {}
        for name, (key, value) in (self.mapping(node, what) or {}).items():
            number = value.value if isinstance(value, Scalar) else None
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= 1024:
                self.diagnostics.add(
                    value, f"the count of {name!r} in {what} must be from 0 to 1024, not {describe_node(value)}"
                )
            elif self._profile(key, name):
                out[name] = number
        return out

    def _profile(self, at: Scalar, text: str) -> bool:
        known = [*catalog_names(), WHOLE]
        if text not in known:
            self.diagnostics.add(at, f"no GPU of the catalog has a profile {text!r}{did_you_mean(text, known)}")
        return text in known

    def seconds(self, fields: dict[str, Field], key: str, usual: float, least: float = 0.0) -> float:
        if key not in fields:
            return usual
        node = fields[key][1]
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LONGEST_S:
            self.diagnostics.add(node, f"{key!r} takes seconds, {least:g} or more, not {describe_node(node)}")
            return usual
        return float(value)

    def whole(self, fields: dict[str, Field], key: str, usual: int) -> int:
        if key not in fields:
            return usual
        node = fields[key][1]
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1_000_000:
            self.diagnostics.add(node, f"{key!r} takes a whole number, not {describe_node(node)}")
            return usual
        return value

    def flag(self, fields: dict[str, Field], key: str, usual: bool) -> bool:
        if key not in fields:
            return usual
        node = fields[key][1]
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        self.diagnostics.add(node, f"{key!r} is true or false, not {describe_node(node)}")
        return usual

    def choice(self, fields: dict[str, Field], key: str, choices: Sequence[Word], usual: Word) -> Word:
        word = self.word(fields, key, usual)
        known = next((each for each in choices if each == word), None)
        if known is None:
            self.diagnostics.add(fields[key][1], f"{key!r} is one of {', '.join(choices)}, not {word!r}")
        return known or usual

    def word(self, fields: dict[str, Field], key: str, usual: str) -> str:
        if key not in fields:
            return usual
        return self.text(fields[key][1], f"{key!r}") or usual

    def listen(self, fields: dict[str, Field]) -> str:
        from aliquot.metrics.listen_address import parse_listen_address

        word = self.word(fields, "listen", "")
        try:
            if word:
                parse_listen_address(word)
        except AliquotError as error:
            self.diagnostics.add(fields["listen"][1], error.brief)
        return word

    def reach(self, fields: dict[str, Field], name: str) -> tuple[str, ...]:
        """Split ``ssh {host}`` into words. ``{host}`` is the key 'host', and ``{node}`` the name in Slurm."""
        host = self._filled(fields, "host", {"node": name}) or name
        text = self._filled(fields, "reach", {"node": name, "host": host})
        try:
            return tuple(shlex.split(text))
        except ValueError as error:
            self.diagnostics.add(fields["reach"][1], f"'reach' is not a command: {error}")
            return ()

    def _filled(self, fields: dict[str, Field], key: str, values: dict[str, str]) -> str:
        node = fields[key][1] if key in fields else None
        if node is None or (isinstance(node, Scalar) and node.value == ""):
            return ""
        text = self.text(node, f"{key!r}") or ""
        try:
            return text.format_map(values)
        except (KeyError, ValueError, IndexError):
            known = " and ".join(f"{{{each}}}" for each in values)
            self.diagnostics.add(node, f"{key!r} may contain {known}, but no other braces")
            return ""

    def options(self, fields: dict[str, Field]) -> tuple[str, ...]:
        if "options" not in fields:
            return ()
        node = fields["options"][1]
        if not isinstance(node, List):
            self.diagnostics.add(node, f"'options' must be a list of words, not {describe_node(node)}")
            return ()
        words = tuple(item.text for item in node.items if isinstance(item, Scalar))
        if "--slots" in words:
            self.diagnostics.add(node, "'options' are also those of 'aliquot slurm node': use the key 'slots: true'")
        return words

    # -- groups

    def _group(self, fields: dict[str, Field], key: str, allowed: Iterable[str]) -> dict[str, Field]:
        inner = (self.mapping(fields[key][1], f"{key!r}") if key in fields else {}) or {}
        self.check_keys(inner, allowed, f"{key!r}")
        return inner

    def _each(self, fields: dict[str, Field], key: str, read: Callable[[str, Node], T]) -> dict[str, T]:
        inner = (self.mapping(fields[key][1], f"{key!r}") if key in fields else {}) or {}
        return {name: read(name, node) for name, (_, node) in inner.items()}
