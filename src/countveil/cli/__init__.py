"""The command line: `countveil --help`."""

from countveil.cli import (
    assess_command,
    assess_homogeneity_command,
    assess_loss_command,
    assess_map_command,
    assess_presence_command,
    assess_public_command,
    assess_published_command,
    assess_reconstruction_command,
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
from countveil.cli.command_line import main

__all__ = [
    "assess_command",
    "assess_homogeneity_command",
    "assess_loss_command",
    "assess_map_command",
    "assess_presence_command",
    "assess_public_command",
    "assess_published_command",
    "assess_reconstruction_command",
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
