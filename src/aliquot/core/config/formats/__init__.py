"""File formats: native, mig-parted, vgpu-device-manager, checkpoints."""
