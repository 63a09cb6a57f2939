"""The command line: `countveil --help`."""

from countveil.cli import commands, risk_commands
from countveil.cli.application import main

__all__ = ["commands", "main", "risk_commands"]
