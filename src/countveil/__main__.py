"""`python -m countveil` is the command line."""

from countveil.cli.application import main

main()
