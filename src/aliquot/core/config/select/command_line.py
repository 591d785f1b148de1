"""Requests of the command line: ``--gpu 0 --mig 3g.20gb,id:19,1g.5gb@6``, ``--gpu 1 --vgpu A2-4Q:4``. They are resolved
like a file's entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import join

import msgspec

from aliquot.core.config.file import MIG, NATIVE, PASSTHROUGH, VGPU, ConfigEntry, ConfigFile
from aliquot.core.config.select.gpu_selection import parse_gpu_words, select_gpus
from aliquot.core.config.select.named_config import select
from aliquot.core.config.select.profile_lookup import names_of_gpus
from aliquot.core.config.select.selector import ALL, Selector, product_key
from aliquot.core.config.text.diagnostics import Diagnostics
from aliquot.core.config.text.instance_request import InstanceRequest, parse_instance_request
from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.config.text.vgpu_request import NONE, VgpuRequest, comma_separated, parse_vgpu_request
from aliquot.core.config.text.yaml_nodes import TextPosition
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import ConfigError, NoSuchGpuError


def adhoc(
    gpus: Sequence[str],
    mig: Sequence[str],
    inventory: Inventory,
    *,
    vgpu: Sequence[str] = (),
    mixed_size: bool | None = None,
    passthrough: bool | None = None,
    source: str | None = None,
) -> Desired:
    """Resolve the requests of a command line.

    Each of ``gpus`` is ``all``, an index list (``0-3``), a PCI address, a ``GPU-`` UUID or a product, or several
    separated by commas. If empty, it is the only GPU of the node that can have the requested share.

    One of three must be given. ``mig``: each is ``disabled``, ``empty`` or requests separated by commas. ``vgpu``: each
    is ``none`` or types with counts; ``mixed_size`` requests mixed-size mode, None means "as it is". ``passthrough``.
    One text is for all the GPUs; several need as many ``--gpu``. ``source`` is what errors call the texts: by default
    the option, "" for the only text of a form. Raises ConfigError with all errors, each with its column.
    """
    given = [name for name, present in ((MIG, mig), (VGPU, vgpu), (PASSTHROUGH, passthrough is not None)) if present]
    if not given:
        raise ConfigError("nothing is requested: add --mig, for example --mig 3g.20gb,1g.5gb")
    if len(given) > 1:
        raise ConfigError(f"a GPU is shared in one way: give one of --{' and --'.join(given)}")
    share = given[0]
    texts = mig or vgpu or ("on" if passthrough else "off",)
    targets = list(gpus) or [only_gpu(inventory, share, [word for text in texts for word in (f"--{share}", text)])]
    if len(texts) not in (1, len(targets)):
        raise ConfigError(
            f"{len(texts)} times --{share} for {len(targets)} times --gpu: give one --{share}, or one for each --gpu"
        )
    source = f"--{share}" if source is None else source
    entries: list[ConfigEntry] = []
    for n, text in enumerate(texts):
        mine = targets if len(texts) == 1 else targets[n : n + 1]
        wanted = _entry(share, text, mixed_size, inventory, mine, source)
        found = (selector for target in mine for selector in selectors(target, inventory))
        entries += [msgspec.structs.replace(wanted, selector=selector) for selector in found]
    return select(ConfigFile(source, NATIVE, {"": tuple(entries)}), None, inventory)


def _entry(
    share: str, text: str, mixed_size: bool | None, inventory: Inventory, targets: Sequence[str], source: str
) -> ConfigEntry:
    """Return the request of one text as an entry for all GPUs."""
    if share == MIG:
        mig, requests = instance_requests(text, inventory, targets, source)
        return ConfigEntry(ALL, mig, requests, 0, 0)
    if share == VGPU:
        return ConfigEntry(ALL, False, (), 0, 0, VGPU, _types(text, source), mixed_size)
    return ConfigEntry(ALL, False, (), 0, 0, PASSTHROUGH, on=text == "on")


def only_gpu(inventory: Inventory, share: str, words: Iterable[str]) -> str:
    """Return the PCI address of the only GPU that can have this share. Raises ConfigError if there are none or more,
    with a command that has ``words``, the options of the request, and a GPU.
    """
    what = {MIG: "can be partitioned", VGPU: "can have vGPUs", PASSTHROUGH: "can be passed through"}[share]
    able = [gpu for gpu in inventory.gpus if _able(inventory, gpu, share)]
    if len(able) == 1:
        return able[0].pci
    if not able:
        raise ConfigError(f"this node has no GPU that {what}", next_step="aliquot show")
    raise ConfigError(
        f"this node has {len(able)} GPUs that {what}: name one with --gpu, several (--gpu 0,1), or all (--gpu all)",
        next_step=join(["aliquot", "plan", "--gpu", str(able[0].index), *words]),
    )


def _able(inventory: Inventory, gpu: Gpu, share: str) -> bool:
    if share == MIG:
        return gpu.mig.capable
    return not gpu.lost and (share == PASSTHROUGH or inventory.vgpu_table(gpu) is not None)


def selectors(text: str, inventory: Inventory) -> list[Selector]:
    """Return the selectors of a ``--gpu``. Raises ConfigError."""
    try:
        return [selector for _, selector in parse_gpu_words(text, inventory)]
    except ValueError as error:
        hint = did_you_mean(str(error), {product_key(gpu.product) for gpu in inventory.gpus})
        raise ConfigError(
            f"--gpu {str(error)!r} is not an index, PCI address, GPU- UUID or product of this node{hint}",
            next_step="aliquot show",
        ) from None


def instance_requests(
    text: str, inventory: Inventory, targets: Sequence[str], source: str
) -> tuple[bool, tuple[InstanceRequest, ...]]:
    """Return whether a text requests MIG mode, and the instances. Raises ConfigError with all errors of ``source``, and
    with similar names that the targets have: words for GPUs, or none for all GPUs.
    """
    if text.strip() == "disabled":
        return False, ()
    if text.strip() == "empty":
        return True, ()
    diagnostics = Diagnostics(source)
    found = []
    for column, part in _parts(text):
        try:
            found.append(parse_instance_request(part, 0, column))
        except ValueError as error:
            diagnostics.next_step = "aliquot profiles"
            names = names_of_gpus(inventory, _targeted(inventory, targets))
            hint = did_you_mean(part.partition("@")[0].partition("*")[0], names)
            diagnostics.add(TextPosition(0, column), f"{error}{hint}")
    diagnostics.check()
    return True, tuple(found)


def _targeted(inventory: Inventory, targets: Sequence[str]) -> tuple[Gpu, ...]:
    """Return the GPUs that the words name, or all of them: wrong words are reported later."""
    try:
        return select_gpus(inventory, targets) if targets else inventory.gpus
    except NoSuchGpuError:
        return inventory.gpus


def _types(text: str, source: str) -> tuple[VgpuRequest, ...]:
    if text.strip() == NONE:
        return ()
    diagnostics = Diagnostics(source)
    found: list[VgpuRequest] = []
    for column, part in comma_separated(text):
        try:
            found.append(parse_vgpu_request(part, column))
        except ValueError as error:
            diagnostics.add(TextPosition(0, column), str(error))
    diagnostics.check()
    return tuple(found)


def _parts(text: str) -> list[tuple[int, str]]:
    """Split requests and give each its column. A comma also separates the attributes of one profile
    (``1g.5gb+me,gfx``): a part that follows one and starts with a letter belongs to its attributes.
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
