"""`aliquot slurm`."""
