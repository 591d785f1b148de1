"""Files, locks, paths, bounded processes and logs, without a word about GPUs."""
