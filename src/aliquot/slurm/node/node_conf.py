"""The keys of a node's configuration: ``CPUs=2 Feature=mig Gres=...``, in slurm.conf or after ``slurmd --conf``.

Pure. Only ``Gres``, and ``Feature`` if requested, ever get a new value.
"""

from __future__ import annotations

import re
import shlex

from aliquot.slurm.client.models import SlurmNode

_WORD = re.compile(r'(?P<key>[A-Za-z]\w*)=(?P<value>"[^"]*"|\S*)')
DROPPED = ("nodename", "gres", "state", "reason", "port")
"""Keys that we set, or that ``--conf`` refuses."""


def words(text: str) -> dict[str, str]:
    """Parse a node's configuration: keys as written, values without quotes."""
    return {m["key"]: m["value"].strip('"') for m in _WORD.finditer(text)}


def gres_of(text: str) -> str:
    """Return the value of ``Gres``, or ""."""
    return next((value for key, value in words(text).items() if key.lower() == "gres"), "")


def includes(text: str, others: str) -> bool:
    """Report whether a configuration has all keys of another one, with equal values."""
    have = {key.lower(): value for key, value in words(text).items()}
    return all(have.get(key.lower()) == value for key, value in words(others).items() if key.lower() not in DROPPED)


def invalid_words(text: str) -> tuple[str, ...]:
    """Return an error for each word that is not ``Key=value``."""
    rest = _WORD.sub("", text).split()
    return tuple(f"{word!r} is not KEY=VALUE" for word in rest)


def joined(pairs: dict[str, str]) -> str:
    return " ".join(f'{k}="{v}"' if " " in v else f"{k}={v}" for k, v in pairs.items())


def conf(base: str, gres: str, features: tuple[str, ...] | None = None, *, drained: bool = False) -> str:
    """Return the value of ``slurmd --conf``. With ``drained``, the node registers drained until it is verified."""
    pairs = {k: v for k, v in words(base).items() if k.lower() not in DROPPED}
    if features is not None:
        pairs = {k: v for k, v in pairs.items() if k.lower() not in ("feature", "features")}
        pairs |= {"Feature": ",".join(features)} if features else {}
    pairs |= {"Gres": gres} if gres else {}
    pairs |= {"State": "DRAIN"} if drained else {}
    return joined(pairs)


def from_node(node: SlurmNode) -> str:
    """Return the configuration that reproduces a node of Slurm."""
    pairs = {"CPUs": node.cpus, "RealMemory": node.memory_mib}
    if node.sockets and node.cores and node.threads and node.sockets * node.cores * node.threads == node.cpus:
        pairs |= {"Sockets": node.sockets, "CoresPerSocket": node.cores, "ThreadsPerCore": node.threads}
    texts = {key: str(value) for key, value in pairs.items() if value}
    return joined(texts | ({"Feature": ",".join(node.features)} if node.features else {}))


def conf_in_options(options: str) -> str:
    """Return the value of ``--conf`` in slurmd's options, or "". Raises ValueError for unclosed quotes."""
    parts = shlex.split(options)
    for n, word in enumerate(parts):
        if word == "--conf" and n + 1 < len(parts):
            return parts[n + 1]
        if word.startswith("--conf="):
            return word.partition("=")[2]
    return ""


def with_conf(options: str, text: str) -> str:
    """Return slurmd's options with ``-Z`` and a new value of ``--conf``; other options stay."""
    parts = shlex.split(options)
    remaining: list[str] = []
    skip = False
    for word in parts:
        if skip:
            skip = False
        elif word == "--conf":
            skip = True
        elif not word.startswith("--conf=") and word != "-Z":
            remaining.append(word)
    return shlex.join([*remaining, "-Z", "--conf", text])
