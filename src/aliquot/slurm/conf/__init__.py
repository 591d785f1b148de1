"""Parser of Slurm's configuration files, which follows Slurm's own."""
