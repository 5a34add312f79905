"""`python -m wingbeat` is the command `wingbeat`."""

from ._command import main

main()
