"""Information for jobs and about jobs: device variables, and DCGM's job mapping."""
