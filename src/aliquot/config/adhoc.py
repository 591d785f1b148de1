"""Wishes typed on the command line: ``--gpu 0 --mig 3g.20gb,id:19,1g.5gb@6``. They go the way of a file's entries."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.config.faults import Faults
from aliquot.config.file import NATIVE, ConfigFile, Entry
from aliquot.config.reading import catalog_names, close
from aliquot.config.select import select
from aliquot.config.selector import ALL, Selector, index_list, product_key
from aliquot.config.wish import Wish, parse_wish
from aliquot.config.yaml import Mark
from aliquot.errors import ConfigError
from aliquot.model.desired import Desired
from aliquot.model.ids import pci_address
from aliquot.model.inventory import Inventory

SOURCE = "--mig"


def adhoc(gpus: Sequence[str], mig: Sequence[str], inventory: Inventory) -> Desired:
    """Each ``--gpu`` is ``all``, an index list (``0-3``), a PCI address, a ``GPU-`` UUID or a product, or several with
    commas; each ``--mig`` is ``disabled``, ``empty``, or wishes with commas. One ``--mig`` is for all the GPUs;
    several go with as many ``--gpu``. Without ``--gpu`` the node's only MIG-capable GPU is meant.

    Raises ConfigError with every fault, each with its column.
    """
    if not mig:
        raise ConfigError("nothing is wished for: add --mig, for example --mig 3g.20gb,1g.5gb")
    targets = list(gpus) or [_only(inventory)]
    if len(mig) not in (1, len(targets)):
        raise ConfigError(
            f"{len(mig)} times --mig for {len(targets)} times --gpu: give one --mig, or one for each --gpu"
        )
    entries: list[Entry] = []
    for n, text in enumerate(mig):
        wanted, wishes = _wishes(text)
        for target in targets if len(mig) == 1 else targets[n : n + 1]:
            entries += [Entry(selector, wanted, wishes, 0, 0) for selector in _selectors(target, inventory)]
    return select(ConfigFile(SOURCE, NATIVE, {"": tuple(entries)}), None, inventory)


def _only(inventory: Inventory) -> str:
    capable = [gpu for gpu in inventory.gpus if gpu.mig.capable]
    if len(capable) == 1:
        return capable[0].pci
    raise ConfigError(
        f"this node has {len(capable)} GPUs that can be partitioned: say which with --gpu",
        next_step="aliquot show",
    )


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
            f"--gpu {text!r} is no index, PCI address, GPU- UUID or product of this node{close(text, products)}",
            next_step="aliquot show",
        ) from None


def _wishes(text: str) -> tuple[bool, tuple[Wish, ...]]:
    if text.strip() == "disabled":
        return False, ()
    if text.strip() == "empty":
        return True, ()
    faults = Faults(SOURCE)
    found = []
    for column, part in _parts(text):
        try:
            found.append(parse_wish(part, 0, column))
        except ValueError as error:
            faults.next_step = "aliquot profiles"
            hint = close(part.partition("@")[0].partition("*")[0], catalog_names())
            faults.add(Mark(0, column), f"{error}{hint}")
    faults.check()
    return True, tuple(found)


def _parts(text: str) -> list[tuple[int, str]]:
    """The wishes with their columns. A comma also parts the attributes of one profile (``1g.5gb+me,gfx``): what
    follows one and starts with a letter goes on with the attributes.
    """
    parts: list[tuple[int, str]] = []
    column = 1
    for piece in text.split(","):
        word = piece.strip()
        attribute = word[:1].isalpha() and not word.startswith("id:")
        if parts and attribute and ("+" in parts[-1][1] or "-" in parts[-1][1]):
            start, before = parts[-1]
            parts[-1] = (start, f"{before},{word}")
        else:
            parts.append((column + len(piece) - len(piece.lstrip()), word))
        column += len(piece) + 1
    return parts
