"""The commands of ``aliquot slurm``."""
