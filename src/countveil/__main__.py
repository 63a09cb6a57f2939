"""`python -m countveil` is the command line."""

from countveil.cli.command_line import main

main()
