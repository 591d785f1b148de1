"""What is written into Slurm's files: gres.conf, node lines, helpers.conf, the block that is ours."""
