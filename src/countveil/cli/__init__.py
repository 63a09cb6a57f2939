"""The command line: `countveil --help`."""

from countveil.cli import (
    assess_command,
    assess_homogeneity,
    assess_loss,
    assess_map,
    assess_public,
    choose_command,
    commands,
    compare_command,
    explore_command,
    infer_command,
    intervals_command,
    report_command,
    reproduce_command,
    status_command,
)
from countveil.cli.application import main

__all__ = [
    "assess_command",
    "assess_homogeneity",
    "assess_loss",
    "assess_map",
    "assess_public",
    "choose_command",
    "commands",
    "compare_command",
    "explore_command",
    "infer_command",
    "intervals_command",
    "main",
    "report_command",
    "reproduce_command",
    "status_command",
]
