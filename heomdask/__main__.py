"""``python -m heomdask``: the same as the ``heomdask`` command."""

from heomdask.cli.main import main

main()
