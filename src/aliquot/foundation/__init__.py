"""Files, locks, paths, bounded processes and logs: nothing here knows about GPUs."""
