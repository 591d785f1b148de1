"""Lock the packages of the image, in deploy/image: each package with its hashes, and the bill of materials.

Usage: python tools/build_lock.py    (needs uv, as ``make lock`` installs it)

The lock takes the versions that are installed here, because the tests ran with them.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "deploy/image"
REQUIREMENTS, BUILD, SBOM = (FOLDER / name for name in ("requirements.lock", "build.lock", "sbom.cdx.json"))
CONTAINERFILE = ROOT / "deploy/Containerfile"
EXTRAS = ("agent", "server", "dashboard")
"""The extras of Aliquot that the Containerfile installs."""
HEAD = "# Made by tools/build_lock.py (make lock) from pyproject.toml: change it there.\n"
_PACKAGE = re.compile(r"^(?P<name>[a-z0-9-]+)==(?P<version>\S+) \\$")
_HASH = re.compile(r"^    --hash=sha256:(?P<hash>[0-9a-f]{64})(?: \\)?$")
_VIA = re.compile(r"^    # (?:via ?|  )(?P<parent>\S.*)?$")
_BASE = re.compile(r"^ARG BASE=(?P<name>\S+):(?P<tag>[^:@\s]+)@(?P<digest>sha256:[0-9a-f]{64})$", re.MULTILINE)


class Package(msgspec.Struct, frozen=True):
    """A locked package; ``parents`` need it."""

    name: str
    version: str
    hashes: tuple[str, ...]
    parents: tuple[str, ...]


def read(text: str) -> tuple[Package, ...]:
    """Read a lock file. Raises ValueError for a line that is not a package, one of its hashes, or a comment."""
    found: list[tuple[str, str, list[str], list[str]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if match := _PACKAGE.match(line):
            found.append((match["name"], match["version"], [], []))
        elif found and (match := _HASH.match(line)):
            found[-1][2].append(match["hash"])
        elif found and (match := _VIA.match(line)):
            found[-1][3].extend([match["parent"].partition(" ")[0]] if match["parent"] else [])
        else:
            raise ValueError(f"line {number}: {line!r}")
    return tuple(Package(name, version, tuple(hashes), tuple(parents)) for name, version, hashes, parents in found)


def sbom(lock: str, containerfile: str, version: str) -> str:
    """Build the bill of materials (CycloneDX 1.6): the locked packages, and the image that they are put on.

    Only the lock has hashes: a package has one for each platform, and the installed platform is not known here.
    Raises ValueError for a Containerfile whose base is not pinned.
    """
    packages, base = read(lock), _BASE.search(containerfile)
    if base is None:
        raise ValueError(f"{CONTAINERFILE.name} pins no base: ARG BASE=NAME:TAG@sha256:...")
    name = base["name"].rpartition("/")[2]
    image = f"pkg:oci/{name}@{base['digest'].replace(':', '%3A')}?tag={base['tag']}"
    ours = f"pkg:pypi/aliquot@{version}"
    refs = {"aliquot": ours} | {p.name: f"pkg:pypi/{p.name}@{p.version}" for p in packages}
    needs = {ref: sorted(refs[p.name] for p in packages if owner in p.parents) for owner, ref in refs.items()}
    parts: list[dict[str, Any]] = [
        {
            "type": "library",
            "bom-ref": refs[p.name],
            "name": p.name,
            "version": p.version,
            "purl": refs[p.name],
        }
        for p in packages
    ]
    parts.append({"type": "container", "bom-ref": image, "name": name, "version": base["tag"], "purl": image})
    whole = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": ours, "name": "aliquot", "version": version, "purl": ours}
        },
        "components": parts,
        "dependencies": [{"ref": ref, "dependsOn": each} for ref, each in needs.items()],
    }
    return json.dumps(whole, indent=1) + "\n"


def needed(*extras: str) -> tuple[str, ...]:
    """Return the requirements of pyproject.toml with these extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return (*project["dependencies"], *(r for each in extras for r in project["optional-dependencies"][each]))


def build_system() -> tuple[str, ...]:
    """Return the requirements of pyproject.toml for building a wheel."""
    found: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return tuple(found)


def _compile(requirements: tuple[str, ...], parent: str) -> str:
    """Ask uv for a lock. Raises CalledProcessError."""
    installed = {d.metadata["Name"]: d.version for d in importlib.metadata.distributions()}
    installed.pop("aliquot", None)
    with tempfile.TemporaryDirectory() as folder:
        wanted, tested = Path(folder, "requirements.in"), Path(folder, "tested.txt")
        wanted.write_text("".join(f"{each}\n" for each in sorted(set(requirements))))
        tested.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()))
        command = ["uv", "pip", "compile", str(wanted), "--constraint", str(tested), "--generate-hashes", "--no-header"]
        command += ["--python-version", "3.11", "--python-platform", "linux", "--quiet", "--no-config"]
        text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout
    lines = (re.sub(r"-r .*requirements\.in$", parent, line) for line in text.splitlines() if "-c " not in line)
    return HEAD + "".join(f"{line}\n" for line in lines)


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    try:
        REQUIREMENTS.write_text(_compile(needed(*EXTRAS), "aliquot"))
        BUILD.write_text(_compile(build_system(), "aliquot"))
    except FileNotFoundError:
        print("uv is missing: make lock", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(error.stderr, file=sys.stderr)
        return 1
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/aliquot/__init__.py").read_text(), re.MULTILINE)
    assert version is not None
    SBOM.write_text(sbom(REQUIREMENTS.read_text(), CONTAINERFILE.read_text(), version[1]))
    print(f"locked {len(read(REQUIREMENTS.read_text()))} packages, and {len(read(BUILD.read_text()))} to build with")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
