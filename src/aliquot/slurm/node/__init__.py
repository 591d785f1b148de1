"""Changes of a Slurm node's GPUs: drain, change through the planner, register the new GRES, resume."""
