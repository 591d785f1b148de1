"""Readers of Slurm's JSON, from slurmrestd and from ``--json`` of the commands.

Each document names its format by a version of its own, v0.0.NN; Slurm supports three or four of them at a time. The
fields that we read have three formats: plain numbers (``plain``), numbers in wrappers (``wrapped``), and from v0.0.45
without ``shared`` (``later``). Sources: output of 22.05.8 and 24.11.5, and Slurm's data parsers v0.0.39 and v0.0.43 to
v0.0.46.
"""
