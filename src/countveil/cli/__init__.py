"""The command line: `countveil --help`."""

from countveil.cli import commands
from countveil.cli.application import main

__all__ = ["commands", "main"]
