"""Content of Slurm's files: gres.conf, node lines, helpers.conf, and our managed block."""
