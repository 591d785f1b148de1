"""What a job is told: device variables, DCGM's job mapping."""
