"""What slurmctld says and is told: through Slurm's commands or slurmrestd."""
