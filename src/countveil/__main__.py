"""`python -m countveil` is the command line."""

from countveil.cli import main

main()
