"""Slurm's JSON, of slurmrestd and of the commands' ``--json``: one reader per shape, chosen by the document itself.

Slurm names the shape by a version of its own, v0.0.NN, and keeps three or four of them at a time. What we read of them
came in three shapes: plain numbers (``plain``), numbers in wrappers (``wrapped``), and from v0.0.45 on without
``shared`` (``later``). Sources: what 22.05.8 and 24.11.5 print, and Slurm's data parsers v0.0.39 and v0.0.43-v0.0.46.
"""
