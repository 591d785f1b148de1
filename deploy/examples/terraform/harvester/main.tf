# A Harvester virtual machine with a vGPU, by Harvester's own provider.
#
#   terraform init
#   terraform apply -var 'gpu_resource=nvidia.com/NVIDIA_A2-4Q' -var 'image=default/ubuntu-24.04'
#
# The vGPUs are there already: see ../README.md.

terraform {
  required_version = ">= 1.5"
  required_providers {
    harvester = {
      source = "harvester/harvester"
      # host_device came with 1.9.0. Terraform takes a candidate of a release only by its whole name.
      version = "1.9.0-rc3"
    }
  }
}

provider "harvester" {
  kubeconfig = var.kubeconfig
}

resource "harvester_virtualmachine" "machine" {
  count = var.machines

  name         = "${var.name}-${count.index}"
  namespace    = var.namespace
  run_strategy = "RerunOnFailure"
  machine_type = "q35"
  cpu          = var.cores
  memory       = var.memory

  # a device of a resource that "aliquot capacity" lists; one block for each device
  host_device {
    name        = "gpu0"
    device_name = var.gpu_resource
  }

  disk {
    name        = "root"
    type        = "disk"
    bus         = "virtio"
    boot_order  = 1
    size        = "40Gi"
    image       = var.image
    auto_delete = true
  }

  network_interface {
    name = "default"
  }

  # The names of devices are those of the objects, once the machine has them: Aliquot and Harvester write them.
  lifecycle {
    ignore_changes = [host_device]
  }
}
