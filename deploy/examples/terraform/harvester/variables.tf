variable "kubeconfig" {
  description = "Access to the cluster."
  type        = string
  default     = "~/.kube/config"
}

variable "namespace" {
  description = "Where the machines are made."
  type        = string
  default     = "default"
}

variable "name" {
  description = "The machines are called NAME-0, NAME-1, ..."
  type        = string
  default     = "vgpu"
}

variable "machines" {
  description = "How many machines."
  type        = number
  default     = 1
}

variable "gpu_resource" {
  description = "The resource of a vGPU type, as aliquot capacity lists it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9.-]+/[A-Za-z0-9_.-]+$", var.gpu_resource))
    error_message = "A resource is called VENDOR/NAME, for example nvidia.com/NVIDIA_A2-4Q; a type's name has no blanks here."
  }
}

variable "cores" {
  description = "Virtual CPUs of a machine."
  type        = number
  default     = 4
}

variable "memory" {
  description = "Memory of a machine."
  type        = string
  default     = "8Gi"
}

variable "image" {
  description = "The VM image that a machine starts from, as NAMESPACE/NAME."
  type        = string
}
