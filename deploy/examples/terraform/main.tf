# Virtual machines with a vGPU each, on a KubeVirt cluster where Aliquot divides the GPUs.
#
#   terraform init
#   terraform apply -var 'gpu_resource=nvidia.com/NVIDIA_A2-4Q' -var machines=2
#
# The vGPUs are there already: see README.md.

terraform {
  required_version = ">= 1.5"
  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.30, < 4"
    }
  }
}

provider "kubernetes" {
  config_path = var.kubeconfig
}

resource "kubernetes_manifest" "machine" {
  count = var.machines

  manifest = {
    apiVersion = "kubevirt.io/v1"
    kind       = "VirtualMachine"
    metadata = {
      name      = "${var.name}-${count.index}"
      namespace = var.namespace
    }
    spec = {
      runStrategy = "RerunOnFailure"
      template = {
        metadata = {
          labels = {
            "kubevirt.io/domain" = "${var.name}-${count.index}"
          }
        }
        spec = {
          domain = {
            cpu    = { cores = var.cores }
            memory = { guest = var.memory }
            devices = {
              # what Kubernetes counts, and what "aliquot capacity" lists; the name is yours
              gpus = [
                {
                  name       = "gpu0"
                  deviceName = var.gpu_resource
                }
              ]
              disks = [
                {
                  name = "root"
                  disk = { bus = "virtio" }
                }
              ]
            }
          }
          volumes = [
            {
              name          = "root"
              containerDisk = { image = var.image }
            }
          ]
        }
      }
    }
  }

  # What others write into a machine after Terraform did: the devices' names and which one has the boot display, where
  # it runs and with which devices. Without this every later plan would show, and undo, their work.
  computed_fields = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.finalizers",
    "spec.template.spec.domain.devices.gpus",
    "spec.template.spec.domain.devices.hostDevices",
    "spec.template.spec.domain.machine",
    "spec.template.spec.domain.firmware",
    "spec.template.spec.architecture",
  ]

  # "Insufficient" would be waited for until the time is over: more machines than fit are refused by admission instead.
  dynamic "wait" {
    for_each = var.wait ? [1] : []
    content {
      fields = {
        "status.printableStatus" = "Running"
      }
    }
  }

  timeouts {
    create = "15m"
  }
}
