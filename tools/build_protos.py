"""Generate the gRPC modules from the kubelet's ``.proto`` files; ``--check`` reports whether they are up to date.

Needs grpcio-tools 1.72.2 (protobuf 6.30): modules of a newer one do not load with an older protobuf.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PROTOS = (
    SOURCE / "aliquot/kubernetes/device_plugin/protos",
    SOURCE / "aliquot/kubernetes/dra/plugin/protos",
)
VERSION = "1.72.2"


def build(target: Path) -> None:
    """Write the modules below ``target``, in the package's folders. Raises SystemExit if the tools are missing."""
    import grpc_tools  # noqa: F401

    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    names = [str(p.relative_to(SOURCE)) for folder in PROTOS for p in sorted(folder.glob("*.proto"))]
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpclib_python")]
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{SOURCE}", *outputs, *names]
    subprocess.run(command, cwd=SOURCE, env=os.environ | {"PATH": path}, check=True)


def differences(target: Path) -> list[str]:
    """Return the names of modules that differ from those just generated below ``target``."""
    names = set()
    for folder in PROTOS:
        inside = folder.relative_to(SOURCE)
        made = (target / inside).iterdir(), folder.glob("*_pb2*"), folder.glob("*_grpc.py")
        names |= {inside / p.name for found in made for p in found}
    return sorted(str(n) for n in names if _text(target / n) != _text(SOURCE / n))


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a module is out of date")
    if not parser.parse_args().check:
        build(SOURCE)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        stale = differences(Path(folder))
    for name in stale:
        print(f"{name}: out of date, run tools/build_protos.py")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
