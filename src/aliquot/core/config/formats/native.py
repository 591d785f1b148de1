"""The native format, ``version: aliquot/v1``: named configs of entries ``{gpus, mig}``, or with another share.

``gpus`` is ``all`` or a mapping of product, index, uuid, pci and device-filter, every term of which must hold.
``mig`` is ``disabled``, a mapping of profile to count, or a list of wishes with placements. ``vgpu`` is ``none`` or a
mapping of type to count, with ``mixed-size`` beside it; ``passthrough`` is ``true`` or ``false``.
"""

from __future__ import annotations

import msgspec

from aliquot.core.config.file import JSON_MARK, MIG, NATIVE, SHARES, VGPU, ConfigFile, Entry
from aliquot.core.config.formats.native_vgpu import MIXED, read_flag, read_mixed, read_types
from aliquot.core.config.select.overlaps import certain_overlaps
from aliquot.core.config.select.selector import ALL, MAX_INDEX, Filter, Selector, index_list, product_key
from aliquot.core.config.text.instance_request import MAX_COUNT, Wish, parse_wish
from aliquot.core.config.text.node_reader import Reading, article, repeated_wishes
from aliquot.core.config.text.yaml_nodes import Document, List, Map, Node, Scalar
from aliquot.core.model.ids import device_filter, pci_address

_TERMS = ("product", "index", "uuid", "pci", "device-filter")


def read(document: Document, source: str, *, compat: bool, profiles: tuple[str, ...] = ()) -> ConfigFile:
    """Raises ConfigError with every fault. ``compat`` changes only how overlapping entries are taken."""
    reading = _Native(source)
    reading.profile_hints = profiles
    reading.duplicates(document)
    configs = reading.top(document, compat)
    reading.faults.check()
    return ConfigFile(source, NATIVE, configs, compat)


class _Native(Reading):
    def top(self, document: Document, compat: bool) -> dict[str, tuple[Entry, ...]]:
        assert isinstance(document.root, Map)
        fields = self.mapping(document.root, "the file") or {}
        fields.pop(JSON_MARK, None)
        self.known(fields, ("version", "configs"), "the file")
        if "configs" not in fields:
            self.faults.add(document.root, "the key 'configs' is missing")
            return {}
        node = fields["configs"][1]
        configs = self.mapping(node, "'configs'")
        if configs is not None and not configs:
            self.faults.add(node, "'configs' must have at least one named config")
        return {name: self.config(name, value, compat) for name, (_, value) in (configs or {}).items()}

    def config(self, name: str, node: Node, compat: bool) -> tuple[Entry, ...]:
        found = [self.entry(item) for item in self.entries(node, f"the named config {name!r}")]
        entries = tuple(e for e in found if e is not None)
        if not compat and len(entries) == len(found):
            for entry, other in certain_overlaps(entries):
                self.faults.add(
                    entry, f"this entry and the one in line {other.line} want different things of the same GPU"
                )
        return entries

    def entry(self, node: Node) -> Entry | None:
        fields = self.mapping(node, "an entry")
        if fields is None:
            return None
        fields = self.known(fields, ("gpus", *SHARES, MIXED), "an entry", required=("gpus",))
        if "gpus" not in fields:
            self.faults.add(node, "the entry lacks the key 'gpus' (all, or for example {index: \"0-3\"})")
        shares = [key for key in SHARES if key in fields]
        if len(shares) != 1:
            self.faults.add(node, f"the entry must have one of mig, vgpu and passthrough, not {len(shares)}")
        selector = self.selector(fields["gpus"][1]) if "gpus" in fields else ALL
        mixed = read_mixed(self, fields, VGPU in shares)
        if not shares:
            return None
        share, value = shares[0], fields[shares[0]][1]
        if share == MIG:
            mig, wishes = self.mig(value)
            return Entry(selector, mig, wishes, node.line, node.column)
        entry = Entry(selector, False, (), node.line, node.column, share, mixed=mixed)
        if share == VGPU:
            return msgspec.structs.replace(entry, types=read_types(self, value))
        return msgspec.structs.replace(entry, on=read_flag(self, value, "'passthrough'") is True)

    def selector(self, node: Node) -> Selector:
        if isinstance(node, Scalar) and node.value == "all":
            return ALL
        if not isinstance(node, Map):
            self.faults.add(node, f"'gpus' must be all or a mapping with {', '.join(_TERMS)}, not {article(node)}")
            return ALL
        fields = self.mapping(node, "'gpus'") or {}
        self.known(fields, _TERMS, "'gpus'")
        if not fields:
            self.faults.add(node, "'gpus' is empty: write all to mean every GPU that can be shared so")
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
                self.faults.add(item, str(error))
                continue
            for number in numbers:
                if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= MAX_INDEX:
                    self.faults.add(item, f"a GPU index is a number from 0 to {MAX_INDEX}, not {article(item)}")
                elif number in found:
                    self.faults.add(item, f"the GPU index {number} is listed twice")
                else:
                    found.append(number)
        if isinstance(node, List) and not node.items:
            self.faults.add(node, "'index' lists no GPU")
        return tuple(found)

    def uuids(self, node: Node) -> tuple[str, ...]:
        found = []
        for at, text in self._some(node, "uuid"):
            if text.upper().startswith("MIG-"):
                self.faults.add(at, f"{text!r} is a MIG device, which ends with its instance: name the GPU's UUID")
            elif not text.startswith("GPU-"):
                self.faults.add(at, f"{text!r} is not a GPU's UUID (GPU-...)")
            else:
                found.append(text.lower())
        return tuple(found)

    def pcis(self, node: Node) -> tuple[str, ...]:
        found = []
        for at, text in self._some(node, "pci"):
            try:
                found.append(pci_address(text))
            except ValueError as error:
                self.faults.add(at, str(error))
        return tuple(found)

    def products(self, node: Node) -> tuple[str, ...]:
        return tuple(product_key(text) for _, text in self._some(node, "product"))

    def filters(self, node: Node) -> tuple[Filter, ...]:
        found = []
        for at, text in self._some(node, "device-filter"):
            try:
                found.append(device_filter(text))
            except ValueError:
                self.faults.add(at, f'{text!r} is not a device filter (expected for example "0x20B010DE")')
        return tuple(found)

    def _some(self, node: Node, what: str) -> list[tuple[Scalar, str]]:
        if isinstance(node, List) and not node.items:
            self.faults.add(node, f"{what!r} lists nothing")
        return self.texts(node, f"{what!r}")

    def mig(self, node: Node) -> tuple[bool, tuple[Wish, ...]]:
        if isinstance(node, Scalar) and node.value == "disabled":
            return False, ()
        if isinstance(node, Map):
            wishes = [self.counted(key, value) for key, value in node.entries]
            for wish in repeated_wishes(w for w in wishes if w):
                self.faults.add(wish, f"{wish.text!r} names a profile that this entry has already")
        elif isinstance(node, List):
            wishes = [self.placed(item) for item in node.items]
        else:
            self.faults.add(node, f"'mig' must be disabled, a mapping of counts or a list, not {article(node)}")
            wishes = []
        return True, tuple(w for w in wishes if w is not None)

    def counted(self, key: Scalar, node: Node) -> Wish | None:
        wish = self.wish(key, key.text, counted=False)
        count = node.value if isinstance(node, Scalar) else None
        if not isinstance(count, int) or isinstance(count, bool):
            self.faults.add(node, f"the count of {key.text!r} must be a whole number, not {article(node)}")
        elif not 1 <= count <= MAX_COUNT:
            self.faults.add(node, f"the count of {key.text!r} must be from 1 to {MAX_COUNT}, not {count}")
        elif wish is not None and wish.start is not None and count != 1:
            self.faults.add(node, f"{key.text!r} asks for {count} instances at one placement")
        elif wish is not None:
            return _with_count(wish, count)
        return None

    def placed(self, node: Node) -> Wish | None:
        """An item of a list: ``3g.20gb@4``, or ``{profile, placement, compute}``."""
        if not isinstance(node, Map):
            text = self.text(node, "a wish")
            return None if text is None else self.wish(node, text)
        fields = {key.text: (key, value) for key, value in node.entries}
        self.known(fields, ("profile", "placement", "compute"), "a wish")
        if "profile" not in fields:
            self.faults.add(node, "the wish lacks the key 'profile'")
            return None
        at = fields["profile"][1]
        text = self.text(at, "'profile'")
        if text is None:
            return None
        place = fields["placement"][1] if "placement" in fields else None
        if isinstance(place, Scalar):
            text = f"{text}@{place.text}"
        elif place is not None:
            self.faults.add(place, "'placement' is the first memory slice, for example 4 or 4:4")
        wish = self.wish(at, text, counted=False)
        inside = fields["compute"][1] if "compute" in fields else None
        if wish is None or inside is None:
            return wish
        return self.with_compute(wish, inside)

    def with_compute(self, wish: Wish, node: Node) -> Wish | None:
        if not isinstance(node, List):
            self.faults.add(node, f"'compute' must be a list of compute instance profiles, not {article(node)}")
            return None
        texts = [(item, self.text(item, "a compute instance")) for item in node.items]
        inner = [self.wish(item, text, counted=False) for item, text in texts if text is not None]
        parts = tuple(c for c in inner if c is not None)
        if 0 < sum(c.start is not None for c in parts) < len(parts):
            self.faults.add(node, "give the slot (@) of every compute instance or of none")
        return Wish(
            wish.text, wish.line, wish.column, wish.name, wish.profile_id, 1, wish.start, wish.size, compute=parts
        )

    def wish(self, at: Node, text: str, *, counted: bool = True) -> Wish | None:
        try:
            return parse_wish(text, at.line, at.column, counted=counted)
        except ValueError as error:
            self.bad_profile(at, error, text.partition("@")[0])
            return None


def _with_count(wish: Wish, count: int) -> Wish:
    return Wish(wish.text, wish.line, wish.column, wish.name, wish.profile_id, count, wish.start, wish.size)
