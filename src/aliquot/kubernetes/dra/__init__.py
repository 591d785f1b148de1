"""The driver for Dynamic Resource Allocation (DRA): GPUs and MIG instances as devices of resource slices."""
