"""Domain XML for tests: small VMs in software emulation, without disks."""

from __future__ import annotations

GRAPHICS = "<graphics type='vnc' port='-1' listen='127.0.0.1'/>"


def domain(name: str, *hostdevs: str, graphics: bool = True, uuid: str = "", ports: int = 8) -> str:
    """Return a q35 VM with free PCIe ports, which hot-plug needs."""
    roots = "".join(f"<controller type='pci' model='pcie-root-port' index='{n + 1}'/>" for n in range(ports))
    identity = f"<uuid>{uuid}</uuid>" if uuid else ""
    return (
        f"<domain type='qemu'><name>{name}</name>{identity}<memory unit='MiB'>64</memory><vcpu>1</vcpu>"
        "<os><type arch='x86_64' machine='q35'>hvm</type></os><devices>"
        f"<controller type='pci' index='0' model='pcie-root'/>{roots}{GRAPHICS if graphics else ''}"
        f"<video><model type='none'/></video><memballoon model='none'/>{''.join(hostdevs)}</devices></domain>"
    )
