"""Wishes typed on the command line: ``--gpu 0 --mig 3g.20gb,id:19,1g.5gb@6``, ``--gpu 1 --vgpu A2-4Q:4``. They go the
way of a file's entries.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.config.file import MIG, NATIVE, PASSTHROUGH, VGPU, ConfigEntry, ConfigFile
from aliquot.core.config.select.named_config import select
from aliquot.core.config.select.selector import ALL, Selector, index_list, product_key
from aliquot.core.config.text.diagnostics import Diagnostics
from aliquot.core.config.text.instance_request import InstanceRequest, parse_instance_request
from aliquot.core.config.text.node_reader import catalog_names, did_you_mean
from aliquot.core.config.text.vgpu_request import NONE, VgpuRequest, comma_separated, parse_vgpu_request
from aliquot.core.config.text.yaml_nodes import TextPosition
from aliquot.core.model.desired import Desired
from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import ConfigError


def adhoc(
    gpus: Sequence[str],
    mig: Sequence[str],
    inventory: Inventory,
    *,
    vgpu: Sequence[str] = (),
    mixed_size: bool | None = None,
    passthrough: bool | None = None,
) -> Desired:
    """Each ``--gpu`` is ``all``, an index list (``0-3``), a PCI address, a ``GPU-`` UUID or a product, or several with
    commas. What they shall be is one of: ``mig``, each ``disabled``, ``empty`` or wishes with commas; ``vgpu``, each
    ``none`` or types with counts (``mixed_size`` says whether in mixed-size mode, None for "as it is");
    ``passthrough``. One text is for all the GPUs; several go with as many ``--gpu``. Without ``--gpu`` the node's only
    GPU that can be shared so is meant.

    Raises ConfigError with every fault, each with its column.
    """
    given = [name for name, present in ((MIG, mig), (VGPU, vgpu), (PASSTHROUGH, passthrough is not None)) if present]
    if not given:
        raise ConfigError("nothing is wished for: add --mig, for example --mig 3g.20gb,1g.5gb")
    if len(given) > 1:
        raise ConfigError(f"a GPU is shared in one way: give one of --{' and --'.join(given)}")
    share = given[0]
    texts = mig or vgpu or ("on" if passthrough else "off",)
    targets = list(gpus) or [_only(inventory, share)]
    if len(texts) not in (1, len(targets)):
        raise ConfigError(
            f"{len(texts)} times --{share} for {len(targets)} times --gpu: give one --{share}, or one for each --gpu"
        )
    entries: list[ConfigEntry] = []
    for n, text in enumerate(texts):
        wanted = _entry(share, text, mixed_size)
        for target in targets if len(texts) == 1 else targets[n : n + 1]:
            entries += [msgspec.structs.replace(wanted, selector=s) for s in _selectors(target, inventory)]
    return select(ConfigFile(f"--{share}", NATIVE, {"": tuple(entries)}), None, inventory)


def _entry(share: str, text: str, mixed_size: bool | None) -> ConfigEntry:
    """What one text asks for, of all GPUs."""
    if share == MIG:
        mig, requests = _instance_requests(text)
        return ConfigEntry(ALL, mig, requests, 0, 0)
    if share == VGPU:
        return ConfigEntry(ALL, False, (), 0, 0, VGPU, _types(text), mixed_size)
    return ConfigEntry(ALL, False, (), 0, 0, PASSTHROUGH, on=text == "on")


def _only(inventory: Inventory, share: str) -> str:
    what = {MIG: "can be partitioned", VGPU: "have vGPU types", PASSTHROUGH: "can be handed out"}[share]
    able = [gpu for gpu in inventory.gpus if _able(inventory, gpu, share)]
    if len(able) == 1:
        return able[0].pci
    raise ConfigError(f"this node has {len(able)} GPUs that {what}: say which with --gpu", next_step="aliquot show")


def _able(inventory: Inventory, gpu: Gpu, share: str) -> bool:
    if share == MIG:
        return gpu.mig.capable
    return not gpu.lost and (share == PASSTHROUGH or inventory.vgpu_table(gpu) is not None)


def _selectors(text: str, inventory: Inventory) -> list[Selector]:
    return [_selector(part.strip(), inventory) for part in text.split(",")]


def _selector(text: str, inventory: Inventory) -> Selector:
    if text == "all":
        return ALL
    if text.upper().startswith("GPU-"):
        return Selector(uuids=(text.lower(),))
    try:
        return Selector(pcis=(pci_address(text),))
    except ValueError:
        pass
    products = {product_key(gpu.product) for gpu in inventory.gpus}
    if product_key(text) in products:
        return Selector(products=(product_key(text),))
    try:
        return Selector(indexes=index_list(text))
    except ValueError:
        raise ConfigError(
            f"--gpu {text!r} is no index, PCI address, GPU- UUID or product of this node{did_you_mean(text, products)}",
            next_step="aliquot show",
        ) from None


def _instance_requests(text: str) -> tuple[bool, tuple[InstanceRequest, ...]]:
    if text.strip() == "disabled":
        return False, ()
    if text.strip() == "empty":
        return True, ()
    diagnostics = Diagnostics(f"--{MIG}")
    found = []
    for column, part in _parts(text):
        try:
            found.append(parse_instance_request(part, 0, column))
        except ValueError as error:
            diagnostics.next_step = "aliquot profiles"
            hint = did_you_mean(part.partition("@")[0].partition("*")[0], catalog_names())
            diagnostics.add(TextPosition(0, column), f"{error}{hint}")
    diagnostics.check()
    return True, tuple(found)


def _types(text: str) -> tuple[VgpuRequest, ...]:
    if text.strip() == NONE:
        return ()
    diagnostics = Diagnostics(f"--{VGPU}")
    found: list[VgpuRequest] = []
    for column, part in comma_separated(text):
        try:
            found.append(parse_vgpu_request(part, column))
        except ValueError as error:
            diagnostics.add(TextPosition(0, column), str(error))
    diagnostics.check()
    return tuple(found)


def _parts(text: str) -> list[tuple[int, str]]:
    """The wishes with their columns. A comma also parts the attributes of one profile (``1g.5gb+me,gfx``): what
    follows one and starts with a letter goes on with the attributes.
    """
    parts: list[tuple[int, str]] = []
    column = 1
    for segment in text.split(","):
        word = segment.strip()
        attribute = word[:1].isalpha() and not word.startswith("id:")
        if parts and attribute and ("+" in parts[-1][1] or "-" in parts[-1][1]):
            start, before = parts[-1]
            parts[-1] = (start, f"{before},{word}")
        else:
            parts.append((column + len(segment) - len(segment.lstrip()), word))
        column += len(segment) + 1
    return parts
