"""The steps that nvidia-mig-parted and `aliquot mig-parted` are both taken through, and the node after each."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from aliquot.sim.client import SimClient
from aliquot.sim.faults import KEYS

FOLDER = Path(__file__).resolve().parent.parent / "recorded/mig-parted"
ANSWERS = FOLDER / "original/answers.json"
NODE = "lab"
"""Every scenario has a node of this name: addresses and UUIDs follow from it."""


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A command line with its environment. ``decision`` is why our answer differs, with the exit code ``ours``."""

    run: str
    decision: str = ""
    ours: int = 0

    @property
    def words(self) -> tuple[dict[str, str], list[str]]:
        """The variables and the words."""
        words = shlex.split(self.run)
        variables: dict[str, str] = {}
        while words and "=" in words[0] and not words[0].startswith("-"):
            name, _, value = words.pop(0).partition("=")
            variables[name] = value
        return variables, words


class Scenario(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    node: str
    steps: tuple[Step, ...]


class Answer(msgspec.Struct, frozen=True):
    """The result of a step: exit code, stdout, and each GPU's geometry."""

    code: int
    out: str
    gpus: tuple[str, ...]


class Steps(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decisions: dict[str, str]
    files: dict[str, str]
    scenarios: tuple[Scenario, ...]


def steps() -> Steps:
    """Read the steps."""
    found: dict[str, Any] = yaml.safe_load((FOLDER / "original/steps.yaml").read_text())
    for scenario in found["scenarios"]:
        scenario["steps"] = [{"run": each} if isinstance(each, str) else each for each in scenario["steps"]]
    return msgspec.convert(found, Steps)


def write_files(folder: Path) -> None:
    """Put the files of the steps, and the recorded ones, into a folder."""
    for name, text in steps().files.items():
        (folder / name).write_text(text)
    for name in ("example.yaml", "default-tables.yaml"):
        shutil.copy(FOLDER / name, folder / name)


def geometry(node: SimClient) -> tuple[str, ...]:
    """Return each GPU in a word: ``disabled`` or ``enabled``, with its instances and what waits for a reset."""
    return tuple(_gpu(gpu) for gpu in node.show()["gpus"])


def _gpu(gpu: dict[str, Any]) -> str:
    mig = gpu["mig"]
    if not mig["capable"]:
        return "no MIG"
    mode = mig["current"] if mig["pending"] == mig["current"] else f"{mig['current']}, {mig['pending']} is pending"
    found = (
        "+".join(sorted(c["profile"] for c in i["compute_instances"])) or f"{i['profile']} without a compute instance"
        for i in gpu["instances"]
    )
    return " ".join([mode, *sorted(found)])


def outside(node: SimClient, words: Sequence[str]) -> None:
    """Apply an event from outside the program: ``hold GPU PROFILE`` or ``fault KIND NAME=VALUE``."""
    verb, *rest = words
    if verb == "hold":
        instances = node.show()["gpus"][int(rest[0])]["instances"]
        node.hold(int(rest[0]), next(i["id"] for i in instances if i["profile"] == rest[1]), pid=4242)
        return
    name, *facts = rest
    kind = next(kind for kind in KEYS if kind == name)
    node.inject_fault(kind, **dict(fact.split("=", 1) for fact in facts))
