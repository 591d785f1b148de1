"""``python -m aliquot``: the same as the ``aliquot`` command."""

from aliquot.cli import main

raise SystemExit(main())
