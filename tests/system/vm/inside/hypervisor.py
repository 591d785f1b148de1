"""Real libvirtd, mdevctl and QEMU: node devices, running VMs with an mdev and with virtual functions, and the holders
that both sides report.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from aliquot.errors import InUseError
from aliquot.libvirt import apply as carry
from aliquot.libvirt import attach, nodedev
from aliquot.libvirt import check as checking
from aliquot.libvirt.choose import VmDeviceRequest
from aliquot.libvirt.connect import open_libvirt
from aliquot.libvirt.device_rules import VmContext
from aliquot.libvirt.models import LibvirtDomain
from aliquot.libvirt.port import Libvirt
from system.vm.inside.checks import check, fails, until
from system.vm.inside.gpus import bare, destroy, destroy_all, gpu, kernel, make, read
from system.vm.inside.machine import A2, FILES, T4, device, driver, sh

QEMU_CONF = """namespaces = []
cgroup_controllers = []
user = "root"
group = "root"
security_driver = "none"
"""
DOMAIN = """<domain type='qemu'><name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
<os><type arch='x86_64' machine='q35'>hvm</type></os>
<devices><emulator>/usr/bin/qemu-system-x86_64</emulator>{devices}</devices></domain>
"""
SCREEN = "<graphics type='vnc'><listen type='socket'/></graphics>"


def define(name: str, devices: str = "") -> None:
    path = Path(f"/tmp/{name}.xml")
    path.write_text(DOMAIN.format(name=name, devices=devices))
    sh("virsh", "define", "--validate", str(path))


def domain(libvirt: Libvirt, name: str) -> LibvirtDomain:
    return attach.find_domain(libvirt.domains(), name)


def give(name: str, *types: str, devices: tuple[str, ...] = ()) -> attach.DeviceChange:
    """Attach devices to the definition, as ``aliquot libvirt attach`` does."""
    with open_libvirt() as libvirt:
        here = domain(libvirt, name)
        around = VmContext(tuple(d for d in libvirt.domains() if d.name != name), libvirt.mdevs())
        ask = VmDeviceRequest(types=tuple((each, 1) for each in types), devices=devices)
        change = attach.plan_attach(read(), here, ask, attach.change_target(here, live=False, config=True), around)
        assert not change.blockers, change.blockers
        carry.attach(libvirt, change)
        return change


def start(name: str) -> LibvirtDomain:
    sh("virsh", "start", name)
    with open_libvirt() as libvirt:
        running = domain(libvirt, name)
    assert running.running
    return running


def stop(name: str) -> None:
    sh("virsh", "destroy", name)
    sh("virsh", "undefine", name)


def pid(name: str) -> str:
    """Return the pid of a VM's QEMU, from libvirt's own file."""
    return Path(f"/run/libvirt/qemu/{name}.pid").read_text().strip()


def libvirt_ends() -> None:
    """End libvirtd, which reads every device again at each change of any."""
    number = int(Path("/run/libvirtd.pid").read_text())
    os.kill(number, signal.SIGTERM)
    until(lambda: not Path(f"/proc/{number}").exists(), 30)


@check(150)
def the_daemons_start() -> str:
    """Start the host's udevd, virtlogd and libvirtd. The first request waits for libvirt's probe of QEMU."""
    Path("/etc/libvirt/qemu.conf").write_text(QEMU_CONF)
    Path("/usr/bin/qemu-system-i386").unlink(missing_ok=True)  # libvirt would probe it as well
    sh("/lib/systemd/systemd-udevd", "--daemon")
    sh("udevadm", "trigger", "--action=add", "--subsystem-match=pci", "--subsystem-match=mdev")
    sh("udevadm", "settle")
    sh("virtlogd", "-d")
    sh("libvirtd", "-d")
    sh("virsh", "capabilities", patience=120)
    with open_libvirt() as libvirt:
        assert libvirt.domains() == ()
        return f"libvirt {sh('virsh', '--version').strip()} through {libvirt.through}"


@check()
def libvirt_lists_the_same_cards() -> None:
    """Compare libvirt's node devices of GPUs and virtual functions, with types, with ours."""
    virtual = gpu(A2).virtual
    assert virtual is not None
    names = {f"pci_{each.pci.replace(':', '_').replace('.', '_')}" for each in virtual.functions}
    until(lambda: names <= set(sh("virsh", "nodedev-list", "--cap", "mdev_types").split()))
    answer = sh("virsh", "nodedev-dumpxml", sorted(names)[0])
    assert "<name>NVIDIA A2-4Q</name>" in answer
    assert "<product id='0x25b6'" in answer  # with its name if the guest has pci.ids


@check(120)
def a_defined_mdev_comes_back() -> str:
    """Define an mdev through us and remove it as a reboot does. libvirt starts it (mdevctl writes to ``create``): the
    same vGPU.
    """
    made = make(A2, 1, 746)
    with open_libvirt() as libvirt:
        until(lambda: made.uuid in {each.uuid for each in libvirt.mdevs()})
        (mdev,) = nodedev.mdevs(read(), libvirt.mdevs())
        assert (mdev.uuid, mdev.function, mdev.persistent, mdev.exists) == (made.uuid, made.function, False, True)
        nodedev.autostart(libvirt, mdev, print)
        FILES.write(device(made.function, f"{made.uuid}/remove"), "1")
        until(lambda: not next(each for each in libvirt.mdevs() if each.uuid == made.uuid).active)
        node = next(each for each in libvirt.mdevs() if each.uuid == made.uuid)
        assert (node.persistent, node.autostart, node.parent, node.type) == (True, True, made.function, "nvidia-746")
        libvirt.start_mdev(node.name)
        (back,) = gpu(A2).vgpus
        assert (back.uuid, back.function, back.type_id) == (made.uuid, made.function, made.type_id)
        destroy(A2, back)
        until(lambda: not next(each for each in libvirt.mdevs() if each.uuid == made.uuid).active)
        libvirt.undefine_mdev(node.name)
        until(lambda: made.uuid not in {each.uuid for each in libvirt.mdevs()})
    return node.name


@check(150)
def a_machine_runs_with_an_mdev() -> str:
    """Run a VM with a screen, display and ramFB as we write them. Both sides name the VM and its process."""
    made = make(A2, 0, 746)
    define("web", SCREEN)
    change = give("web", "NVIDIA A2-4Q")
    assert (change.devices[0].uuid, change.devices[0].ramfb) == (made.uuid, True)
    start("web")
    (now,) = gpu(A2).vgpus
    (found,) = now.holders
    assert (found.kind, found.name, found.id) == ("vm", "web", pid("web"))
    with open_libvirt() as libvirt:
        machine = domain(libvirt, "web")
        assert machine.running
        assert made.uuid in {device.uuid for device in machine.live}
        report = checking.check(read(), machine, VmContext((), libvirt.mdevs()))
    assert not report.all_problems, report.all_problems
    command = Path(f"/proc/{found.id}/cmdline").read_text()
    assert made.uuid in command
    assert '"ramfb":true' in command
    return f"{found} has /dev/vfio open"


@check()
def what_it_holds_is_not_taken() -> None:
    (now,) = gpu(A2).vgpus
    error = fails(InUseError, lambda: destroy(A2, now))
    assert "web" in error.brief
    assert [each.uuid for each in gpu(A2).vgpus] == [now.uuid]
    fails(InUseError, lambda: kernel().set_functions(bare(A2), 0))
    assert len(gpu(A2).virtual.functions) == 16  # type: ignore[union-attr]


@check()
def the_kernel_itself_would_wait() -> str:
    """Show why we check holders first: this kernel does not refuse to remove an open mdev, and the write waits for its
    end.
    """
    (now,) = gpu(A2).vgpus
    path = device(now.function, f"{now.uuid}/remove")
    with subprocess.Popen(["sh", "-c", f"echo 1 > {path}"]) as writer:
        time.sleep(2)
        assert writer.poll() is None, "the kernel refuses, or does it: then our check is needed for another reason"
        stop("web")
        assert writer.wait(20) == 0
    assert not gpu(A2).vgpus
    return "blocked for 2 s, went on when the machine ended"


@check(150)
def a_machine_runs_with_a_function_and_a_whole_gpu() -> str:
    """Pass through a function and a whole GPU and attach both as we write it. QEMU holds them, so they return only when
    the VM is gone.
    """
    virtual = gpu(A2).virtual
    assert virtual is not None
    one = virtual.functions[9].pci
    kernel().set_passthrough(bare(A2), True, one)
    kernel().set_passthrough(bare(T4), True)
    define("lent")
    give("lent", devices=(one, T4))
    start("lent")
    function, whole = gpu(A2).virtual.functions[9], gpu(T4)  # type: ignore[union-attr]
    for holding in (function.holders, whole.holders):
        assert [(each.kind, each.name, each.id) for each in holding] == [("vm", "lent", pid("lent"))]
    for release in (
        lambda: kernel().set_passthrough(bare(A2), False, one),
        lambda: kernel().set_passthrough(whole, False),
    ):
        assert "lent" in fails(InUseError, release).brief
    fails(InUseError, lambda: kernel().set_functions(bare(A2), 0))
    assert (driver(one), driver(T4)) == ("vfio-pci", "vfio-pci")
    stop("lent")
    assert (driver(one), driver(T4)) == ("vfio-pci", "vfio-pci"), "managed='no': libvirt gives nothing back by itself"
    kernel().set_passthrough(bare(A2), False, one)
    kernel().set_passthrough(gpu(T4), False)
    assert (driver(one), driver(T4)) == ("nvidia", "nvidia")
    return f"{one} and {T4}"


@check()
def vms_and_vgpus_are_gone() -> None:
    destroy_all(A2)
    destroy_all(T4)
    assert not sh("virsh", "list", "--all", "--name").strip()
    assert not sh("virsh", "nodedev-list", "--cap", "mdev").strip()
