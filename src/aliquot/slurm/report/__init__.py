"""Report on the GPU jobs of a time window: from Slurm's accounting, and from the GPUs' use that DCGM measured."""
