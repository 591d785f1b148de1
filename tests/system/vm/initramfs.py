"""The first files of the guest, in the format that the kernel unpacks (cpio, "newc"), written without any tool."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

FIRST = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""Modules needed to read the host's files. Their dependencies are added."""

INIT = """#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
for module in {modules}; do /bin/busybox insmod /modules/$module || echo "cannot load $module"; done
/bin/busybox mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=524288,cache=loose host /host
/bin/busybox mount -t tmpfs -o mode=755 over /over
/bin/busybox mkdir /over/upper /over/work
/bin/busybox mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work root /top
for each in proc sys dev; do /bin/busybox mount --move /$each /top/$each; done
/bin/busybox mount -t tmpfs -o mode=755 run /top/run
/bin/busybox cp /plan.json /top/run/plan.json
exec /bin/busybox switch_root /top /bin/sh {script}
echo "the guest found no {script}"
/bin/busybox poweroff -f
"""


def modules(folder: Path) -> Iterator[Path]:
    """Yield the first modules in an order in which they load. ``folder`` is one release's, with its modules.dep."""
    needs = {}
    for line in (folder / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[Path(path).stem] = [path, *rest.split()]
    done: set[str] = set()
    for name in FIRST:
        for path in reversed(needs[name]):
            if path not in done:
                done.add(path)
                yield folder / path


def build(busybox: Path, release: Path, script: Path, plan: str) -> bytes:
    """Build an archive that boots ``script`` on an overlay over the host's files, with ``plan`` in /run/plan.json."""
    loaded = list(modules(release))
    files = {
        "init": INIT.format(modules=" ".join(path.name for path in loaded), script=script).encode(),
        "bin/busybox": busybox.read_bytes(),
        "plan.json": plan.encode(),
    }
    files |= {f"modules/{path.name}": path.read_bytes() for path in loaded}
    return archive(files, ("bin", "proc", "sys", "dev", "modules", "host", "over", "top"))


def archive(files: Mapping[str, bytes], folders: tuple[str, ...]) -> bytes:
    """Build an archive in which every file belongs to root and is executable."""
    parts = [_entry(number, name, stat.S_IFDIR | 0o755, b"") for number, name in enumerate(folders, 1)]
    parts += [
        _entry(number, name, stat.S_IFREG | 0o755, data) for number, (name, data) in enumerate(files.items(), 100)
    ]
    return b"".join((*parts, _entry(0, "TRAILER!!!", 0, b"")))


def _entry(number: int, name: str, mode: int, data: bytes) -> bytes:
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)
