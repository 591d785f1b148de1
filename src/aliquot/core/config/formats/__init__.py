"""The file formats: native, mig-parted, vgpu-device-manager, checkpoints."""
