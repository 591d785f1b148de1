"""Parts of the guest, tested without a start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from system.vm import initramfs, kernel


def test_another_program_unpacks_our_archive(tmp_path: Path) -> None:
    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("apt-get install busybox-static")
    files = {"init": b"#!/bin/sh\n", "bin/odd length": b"12345", "empty": b""}
    data = initramfs.archive(files, ("bin", "proc"))
    subprocess.run([busybox, "cpio", "-idm"], input=data, cwd=tmp_path, check=True, capture_output=True)
    assert {path: (tmp_path / path).read_bytes() for path in files} == files
    assert os.access(tmp_path / "init", os.X_OK)
    assert (tmp_path / "proc").is_dir()


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    rows = {
        "kernel/net/9p/9pnet_virtio.ko": ("kernel/drivers/virtio/virtio.ko", "kernel/net/9p/9pnet.ko"),
        "kernel/fs/9p/9p.ko": ("kernel/fs/netfs/netfs.ko", "kernel/net/9p/9pnet.ko"),
        "kernel/drivers/virtio/virtio_pci.ko": ("kernel/drivers/virtio/virtio.ko",),
        "kernel/fs/overlayfs/overlay.ko": (),
    }
    text = "".join(f"{path}: {' '.join(needs)}\n" for path, needs in rows.items())
    (tmp_path / "modules.dep").write_text(text)
    order = [str(path.relative_to(tmp_path)) for path in initramfs.modules(tmp_path)]
    assert len(order) == len(set(order)) == 7
    for path, needs in rows.items():
        assert all(order.index(need) < order.index(path) for need in needs)


def test_no_kernel_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(kernel.MissingError, match="make vm-kernel"):
        kernel.ready(tmp_path)


def test_the_checks_run_nowhere_but_in_the_guest() -> None:
    # They unbind drivers and replace configuration. On any other machine they must refuse before the first.
    here = Path(__file__).resolve().parents[2]
    place = os.environ | {"PYTHONPATH": f"{here}:{here.parent / 'src'}"}
    done = subprocess.run(
        [sys.executable, "-m", "system.vm.inside"], env=place, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "make test-vm" in done.stderr
    assert not done.stdout
