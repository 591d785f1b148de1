"""``python -m aliquot``: the same as the ``aliquot`` command."""

from aliquot.cli.main import program

program()
