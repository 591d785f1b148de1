"""A Slurm node changes its GPUs: drained, changed through the planner, registered with what is true, resumed."""
