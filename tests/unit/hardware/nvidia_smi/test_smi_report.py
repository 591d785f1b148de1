"""``nvidia-smi -q`` output of real hosts: unrequested sections, columns that move, clients with ids."""

from __future__ import annotations

import pytest

from aliquot.core.model.inventory import Holder, Mig
from aliquot.hardware.nvidia_smi import query_output as report
from aliquot.hardware.nvml.instances import NO_INSTANCE
from system.sim.captures import answer
from system.sim.smi import Smi

TEXT = """
==============NVSMI LOG==============

Timestamp                                 : Wed Jan 14 15:17:09 2026
Driver Version                            : 535.183.01
CUDA Version                              : 12.2

Attached GPUs                             : 2
GPU 00000000:0B:00.0
    Product Name                          : NVIDIA A30
    Product Architecture                  : Ampere
    MIG Mode
        Current                           : Enabled
        Pending                           : Disabled
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 2
        FB Memory Usage
            Total                         : 11968 MiB
    GPU UUID                              : GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd
    Minor Number                          : 3
    GPU Virtualization Mode
        Virtualization Mode               : Pass-Through
        Host VGPU Mode                    : N/A
        vGPU Heterogeneous Mode           : N/A
    PCI
        Bus                               : 0x0B
        Device Id                         : 0x20B710DE
        Bus Id                            : 00000000:0B:00.0
        Sub System Id                     : 0x153210DE
    FB Memory Usage
        Total                             : 24576 MiB
        Reserved                          : 500 MiB
    Processes
        GPU instance ID                   : 2
        Compute instance ID               : 0
        Process ID                        : 280058
            Type                          : C
            Name                          : /opt/a b: c/python
            Used GPU Memory               : 22374 MiB
        GPU instance ID                   : N/A
        Compute instance ID               : N/A
        Process ID                        : 1700
            Type                          : G
            Name                          : /usr/lib/xorg/Xorg
            Used GPU Memory               : 47 MiB
    Capabilities
        EGM                                            : disabled

GPU 00000000:42:00.0
    Product Name                                       : NVIDIA L40S
    Product Architecture                               : Ada Lovelace
    MIG Mode
        Current                                        : N/A
        Pending                                        : N/A
    GPU UUID                                           : GPU-2
    Minor Number                                       : N/A
    GPU Virtualization Mode
        Virtualization Mode                            : Host VGPU
        vGPU Heterogeneous Mode                        : Enabled
    Processes                                          : None
"""


def test_a_gpu_in_mig_mode_with_clients() -> None:
    log = report.parse(TEXT)
    assert (log.driver, log.cuda, log.nvml) == ("535.183.01", "12.2", "12.535.183.01")
    gpu, _ = log.gpus
    assert (gpu.pci, gpu.uuid, gpu.product) == (
        "0000:0b:00.0",
        "GPU-1e44b340-5807-0dbe-62e6-343a6b8b8bcd",
        "NVIDIA A30",
    )
    assert (gpu.pci_device, gpu.subsystem, gpu.minor) == ("0x20B710DE", "0x153210DE", 3)
    assert gpu.mig == Mig(True, "enabled", "disabled")
    assert (gpu.resettable, gpu.guest, gpu.mixed_size, gpu.architecture) == (False, False, None, "ampere")
    assert gpu.memory_mib == 24576, "that of the GPU, not of a MIG device before it"
    assert gpu.processes == (
        (2, 0, Holder("process", "280058", "python")),
        (NO_INSTANCE, NO_INSTANCE, Holder("process", "1700", "Xorg")),
    )


def test_a_vgpu_host_of_a_version_with_a_wider_column() -> None:
    gpu = report.parse(TEXT).gpus[1]
    assert (gpu.pci, gpu.mig.capable, gpu.minor, gpu.mixed_size, gpu.processes) == ("0000:42:00.0", False, -1, True, ())
    assert (gpu.resettable, gpu.architecture, gpu.memory_mib) == (True, "ada", 0)


def test_the_head_of_a_real_vgpu_host() -> None:
    text = answer("rtx-pro-6000-vgpu-host.txt", "nvidia-smi -q -i 0 -d MEMORY,PERFORMANCE")
    log = report.parse(text)
    assert (log.driver, log.cuda, log.nvml) == ("580.105.06", "", "580.105.06"), "CUDA Version: Not Found"
    assert [g.pci for g in log.gpus] == ["0000:42:00.0"]


def test_nothing_is_nothing() -> None:
    assert report.parse("") == report.Log("", "", ())
    with pytest.raises(ValueError, match="not a PCI address"):
        report.parse("GPU somewhere\n    GPU UUID : GPU-1\n")


def test_the_simulated_nodes_clients_come_through() -> None:
    node = Smi("a100-sxm4-40gb")
    assert node.memory.control("hold", gpu=0, instance=None, pid=4242)[0] == 0
    (gpu,) = report.parse(node.ok("-q")).gpus
    assert [(gi, str(who)) for gi, _, who in gpu.processes] == [(NO_INSTANCE, "process 4242 (python3)")]
