"""Content of Slurm's files: gres.conf, node lines, slot boards, helpers.conf, and our managed block."""
