output "machines" {
  description = "The machines, and the resource that each has."
  value = {
    for machine in kubernetes_manifest.machine :
    machine.manifest.metadata.name => var.gpu_resource
  }
}
