"""GPUs named by words: ``0``, ``0-3``, a PCI address, a ``GPU-`` UUID, a product, ``all``, or several with commas."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.config.select.selector import ALL, Selector, index_list, product_key
from aliquot.core.model.ids import pci_address
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import NoSuchGpuError


def parse_gpu_words(text: str, inventory: Inventory) -> list[tuple[str, Selector]]:
    """Return each word of a list with its selector.

    An index list becomes one selector per index. Raises ValueError, with the word, if it has no meaning on this node.
    """
    found: list[tuple[str, Selector]] = []
    for word in (part.strip() for part in text.split(",")):
        selector = _selector(word, inventory)
        if selector.indexes is None:
            found.append((word, selector))
        else:
            found += [(str(index), Selector(indexes=(index,))) for index in selector.indexes]
    return found


def _selector(word: str, inventory: Inventory) -> Selector:
    if word == "all":
        return ALL
    if word.upper().startswith("GPU-"):
        return Selector(uuids=(word.lower(),))
    try:
        return Selector(pcis=(pci_address(word),))
    except ValueError:
        pass
    if product_key(word) in {product_key(gpu.product) for gpu in inventory.gpus}:
        return Selector(products=(product_key(word),))
    try:
        return Selector(indexes=index_list(word))
    except ValueError:
        raise ValueError(word) from None


def select_gpus(inventory: Inventory, words: Sequence[str]) -> tuple[Gpu, ...]:
    """Return the GPUs that the words name, in the node's order.

    Raises NoSuchGpuError for a word that names no GPU of this node, or a virtual function.
    """
    chosen: set[str] = set()
    for text in words:
        try:
            selectors = parse_gpu_words(text, inventory)
        except ValueError as error:
            raise _no_such_gpu(inventory, str(error)) from None
        for word, selector in selectors:
            hits = [gpu.pci for gpu in inventory.gpus if selector.matches(gpu)]
            if not hits:
                raise _no_such_gpu(inventory, word)
            chosen.update(hits)
    return tuple(gpu for gpu in inventory.gpus if gpu.pci in chosen)


def _no_such_gpu(inventory: Inventory, word: str) -> NoSuchGpuError:
    if not inventory.gpus:
        return NoSuchGpuError(f"GPU {word!r} not found: this node has no GPU", next_step="aliquot show")
    known = tuple(f"GPU {g.index}  {g.pci}  {g.uuid}  {g.product}" for g in inventory.gpus)
    owner, number = inventory.find_function(word) or (None, 0)
    if owner is not None:
        sentence = f"{word} is virtual function {number} of GPU {owner.index}: name the GPU itself"
        return NoSuchGpuError(sentence, details=known, next_step=f"aliquot show {owner.pci}")
    return NoSuchGpuError(f"GPU {word!r} not found on this node", details=known, next_step="aliquot show")
