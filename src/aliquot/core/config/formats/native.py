"""The native format, ``version: aliquot/v1``: named configs of entries ``{gpus, mig}``, or with another share.

``gpus`` is ``all`` or a mapping of product, index, uuid, pci and device-filter, every term of which must match.
``mig`` is ``disabled``, a mapping of profile to count, a list of requests with placements, or a mapping or list under
the key ``at-least``. ``vgpu`` is ``none`` or a mapping of type to count; ``mixed-size``,
``scheduler`` and ``vgpu-parameters`` stand beside it.
``passthrough`` is ``true`` or ``false``.
"""

from __future__ import annotations

import msgspec

from aliquot.core.config.file import JSON_MARK, MIG, NATIVE, SHARES, VGPU, ConfigEntry, ConfigFile
from aliquot.core.config.formats.native_vgpu import (
    MIXED,
    PARAMETERS,
    SCHEDULER,
    read_flag,
    read_mixed_size,
    read_parameters,
    read_scheduler,
    read_types,
)
from aliquot.core.config.select.overlaps import certain_overlaps
from aliquot.core.config.select.selector import ALL, MAX_INDEX, Filter, Selector, index_list, product_key
from aliquot.core.config.text.instance_request import MAX_COUNT, InstanceRequest, parse_instance_request
from aliquot.core.config.text.node_reader import ProfileNames, YamlReader, describe_node, repeated_requests
from aliquot.core.config.text.yaml_nodes import List, Map, Node, Scalar, YamlDocument
from aliquot.core.model.ids import device_filter, pci_address

AT_LEAST = "at-least"
_TERMS = ("product", "index", "uuid", "pci", "device-filter")


def read(document: YamlDocument, source: str, *, compat: bool, profiles: ProfileNames) -> ConfigFile:
    """Read a document. Raises ConfigError with all errors. ``compat`` only changes how overlapping entries count."""
    reader = _Native(source)
    reader.profile_hints = profiles
    reader.duplicates(document)
    configs = reader.top(document, compat)
    reader.diagnostics.check()
    return ConfigFile(source, NATIVE, configs, compat)


class _Native(YamlReader):
    def top(self, document: YamlDocument, compat: bool) -> dict[str, tuple[ConfigEntry, ...]]:
        assert isinstance(document.root, Map)
        fields = self.mapping(document.root, "the file") or {}
        fields.pop(JSON_MARK, None)
        self.check_keys(fields, ("version", "configs"), "the file")
        if "configs" not in fields:
            self.diagnostics.add(document.root, "the key 'configs' is missing")
            return {}
        node = fields["configs"][1]
        configs = self.mapping(node, "'configs'")
        if configs is not None and not configs:
            self.diagnostics.add(node, "'configs' must have at least one named config")
        return {name: self.config(name, value, compat) for name, (_, value) in (configs or {}).items()}

    def config(self, name: str, node: Node, compat: bool) -> tuple[ConfigEntry, ...]:
        found = [self.entry(item) for item in self.entries(node, f"the named config {name!r}")]
        entries = tuple(e for e in found if e is not None)
        if not compat and len(entries) == len(found):
            for entry, other in certain_overlaps(entries):
                self.diagnostics.add(
                    entry, f"this entry and the one in line {other.line} request different states of the same GPU"
                )
        return entries

    def entry(self, node: Node) -> ConfigEntry | None:
        fields = self.mapping(node, "an entry")
        if fields is None:
            return None
        fields = self.check_keys(
            fields, ("gpus", *SHARES, MIXED, SCHEDULER, PARAMETERS), "an entry", required=("gpus",)
        )
        if "gpus" not in fields:
            self.diagnostics.add(node, "the entry lacks the key 'gpus' (all, or for example {index: \"0-3\"})")
        shares = [key for key in SHARES if key in fields]
        if len(shares) != 1:
            self.diagnostics.add(node, f"the entry must have one of mig, vgpu and passthrough, not {len(shares)}")
        selector = self.selector(fields["gpus"][1]) if "gpus" in fields else ALL
        mixed_size = read_mixed_size(self, fields, VGPU in shares)
        parameters = read_parameters(self, fields)
        scheduler = read_scheduler(self, fields)
        if not shares:
            return None
        share, value = shares[0], fields[shares[0]][1]
        if share == MIG:
            least = self.at_least(value)
            mig, requests = self.mig(value if least is None else least)
            if least is not None and not mig:
                self.diagnostics.add(least, f"{AT_LEAST!r} must be a mapping of counts or a list, not disabled")
            return ConfigEntry(selector, mig, requests, node.line, node.column, at_least=least is not None)
        entry = ConfigEntry(selector, False, (), node.line, node.column, share, mixed_size=mixed_size)
        if share == VGPU:
            types = read_types(self, value)
            return msgspec.structs.replace(entry, types=types, parameters=parameters, scheduler=scheduler)
        return msgspec.structs.replace(entry, on=read_flag(self, value, "'passthrough'") is True)

    def selector(self, node: Node) -> Selector:
        if isinstance(node, Scalar) and node.value == "all":
            return ALL
        if not isinstance(node, Map):
            self.diagnostics.add(
                node, f"'gpus' must be all or a mapping with {', '.join(_TERMS)}, not {describe_node(node)}"
            )
            return ALL
        fields = self.mapping(node, "'gpus'") or {}
        self.check_keys(fields, _TERMS, "'gpus'")
        if not fields:
            self.diagnostics.add(node, "'gpus' is empty: write all for every GPU that can have this share")
        value = {key: field[1] for key, field in fields.items()}
        return Selector(
            indexes=self.indexes(value["index"]) if "index" in value else None,
            uuids=self.uuids(value["uuid"]) if "uuid" in value else None,
            pcis=self.pcis(value["pci"]) if "pci" in value else None,
            products=self.products(value["product"]) if "product" in value else None,
            filters=self.filters(value["device-filter"]) if "device-filter" in value else None,
        )

    def indexes(self, node: Node) -> tuple[int, ...] | None:
        if isinstance(node, Scalar) and node.value == "all":
            return None
        found: list[int] = []
        for item in node.items if isinstance(node, List) else (node,):
            value = item.value if isinstance(item, Scalar) else None
            try:
                numbers = index_list(value) if isinstance(value, str) else (value,)
            except ValueError as error:
                self.diagnostics.add(item, str(error))
                continue
            for number in numbers:
                if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_INDEX:
                    self.diagnostics.add(
                        item, f"a GPU index is a number from 0 to {MAX_INDEX}, not {describe_node(item)}"
                    )
                elif number in found:
                    self.diagnostics.add(item, f"the GPU index {number} is listed twice")
                else:
                    found.append(number)
        if isinstance(node, List) and not node.items:
            self.diagnostics.add(node, "'index' lists no GPU")
        return tuple(found)

    def uuids(self, node: Node) -> tuple[str, ...]:
        found = []
        for at, text in self._some(node, "uuid"):
            if text.upper().startswith("MIG-"):
                self.diagnostics.add(
                    at, f"{text!r} is a MIG device, whose UUID ends with its instance: use the GPU's UUID"
                )
            elif not text.startswith("GPU-"):
                self.diagnostics.add(at, f"{text!r} is not a GPU's UUID (GPU-...)")
            else:
                found.append(text.lower())
        return tuple(found)

    def pcis(self, node: Node) -> tuple[str, ...]:
        found = []
        for at, text in self._some(node, "pci"):
            try:
                found.append(pci_address(text))
            except ValueError as error:
                self.diagnostics.add(at, str(error))
        return tuple(found)

    def products(self, node: Node) -> tuple[str, ...]:
        return tuple(product_key(text) for _, text in self._some(node, "product"))

    def filters(self, node: Node) -> tuple[Filter, ...]:
        found = []
        for at, text in self._some(node, "device-filter"):
            try:
                found.append(device_filter(text))
            except ValueError:
                self.diagnostics.add(at, f'{text!r} is not a device filter (expected for example "0x20B010DE")')
        return tuple(found)

    def _some(self, node: Node, what: str) -> list[tuple[Scalar, str]]:
        if isinstance(node, List) and not node.items:
            self.diagnostics.add(node, f"{what!r} lists nothing")
        return self.texts(node, f"{what!r}")

    def at_least(self, node: Node) -> Node | None:
        """Return the node under the key ``at-least``; None if the key is missing or the node is not a mapping."""
        fields = {key.text: (key, value) for key, value in node.entries} if isinstance(node, Map) else {}
        if AT_LEAST not in fields:
            return None
        self.check_keys(fields, (AT_LEAST,), f"'mig' beside {AT_LEAST!r}")
        return fields[AT_LEAST][1]

    def mig(self, node: Node) -> tuple[bool, tuple[InstanceRequest, ...]]:
        if isinstance(node, Scalar) and node.value == "disabled":
            return False, ()
        if isinstance(node, Map):
            requests = [self.counted(key, value) for key, value in node.entries]
            for request in repeated_requests(w for w in requests if w):
                self.diagnostics.add(request, f"{request.text!r} names a profile that this entry already has")
        elif isinstance(node, List):
            requests = [self.placed(item) for item in node.items]
        else:
            self.diagnostics.add(
                node, f"'mig' must be disabled, a mapping of counts or a list, not {describe_node(node)}"
            )
            requests = []
        return True, tuple(w for w in requests if w is not None)

    def counted(self, key: Scalar, node: Node) -> InstanceRequest | None:
        name, colon, number = key.text.rpartition(":")
        if colon and name != "id" and number.isdigit() and isinstance(node, Scalar) and node.value is None:
            self.diagnostics.add(key, f"{key.text!r} needs a space after the colon: write {name}: {number}")
            return None
        request = self.request(key, key.text, counted=False)
        count = node.value if isinstance(node, Scalar) else None
        if not isinstance(count, int) or isinstance(count, bool):
            self.diagnostics.add(node, f"the count of {key.text!r} must be a whole number, not {describe_node(node)}")
        elif not 1 <= count <= MAX_COUNT:
            self.diagnostics.add(node, f"the count of {key.text!r} must be from 1 to {MAX_COUNT}, not {count}")
        elif request is not None and request.start is not None and count != 1:
            self.diagnostics.add(node, f"{key.text!r} requests {count} instances at one placement")
        elif request is not None:
            return _with_count(request, count)
        return None

    def placed(self, node: Node) -> InstanceRequest | None:
        """Read an item of a list: ``3g.20gb@4``, or ``{profile, placement, compute}``."""
        if not isinstance(node, Map):
            text = self.text(node, "a request")
            return None if text is None else self.request(node, text)
        fields = {key.text: (key, value) for key, value in node.entries}
        self.check_keys(fields, ("profile", "placement", "compute"), "a request")
        if "profile" not in fields:
            self.diagnostics.add(node, "the request lacks the key 'profile'")
            return None
        at = fields["profile"][1]
        text = self.text(at, "'profile'")
        if text is None:
            return None
        place = fields["placement"][1] if "placement" in fields else None
        if isinstance(place, Scalar):
            text = f"{text}@{place.text}"
        elif place is not None:
            self.diagnostics.add(place, "'placement' is the first memory slice, for example 4 or 4:4")
        request = self.request(at, text, counted=False)
        inside = fields["compute"][1] if "compute" in fields else None
        if request is None or inside is None:
            return request
        return self.with_compute(request, inside)

    def with_compute(self, request: InstanceRequest, node: Node) -> InstanceRequest | None:
        if not isinstance(node, List):
            self.diagnostics.add(
                node, f"'compute' must be a list of compute instance profiles, not {describe_node(node)}"
            )
            return None
        texts = [(item, self.text(item, "a compute instance")) for item in node.items]
        inner = [self.request(item, text, counted=False) for item, text in texts if text is not None]
        parts = tuple(c for c in inner if c is not None)
        if 0 < sum(c.start is not None for c in parts) < len(parts):
            self.diagnostics.add(node, "give the slot (@) of every compute instance or of none")
        return InstanceRequest(
            request.text,
            request.line,
            request.column,
            request.name,
            request.profile_id,
            1,
            request.start,
            request.size,
            compute=parts,
        )

    def request(self, at: Node, text: str, *, counted: bool = True) -> InstanceRequest | None:
        try:
            return parse_instance_request(text, at.line, at.column, counted=counted)
        except ValueError as error:
            self.bad_profile(at, error, text.partition("@")[0])
            return None


def _with_count(request: InstanceRequest, count: int) -> InstanceRequest:
    return InstanceRequest(
        request.text, request.line, request.column, request.name, request.profile_id, count, request.start, request.size
    )
