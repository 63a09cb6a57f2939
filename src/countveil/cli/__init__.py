"""The command line: `countveil --help`."""

from countveil.cli import (
    assess_commands,
    check_command,
    choose_command,
    compare_command,
    demo_command,
    explore_command,
    infer_command,
    init_command,
    intervals_command,
    package_command,
    postprocess_command,
    price_command,
    release_command,
    report_command,
    reproduce_command,
    status_command,
    verify_command,
)
from countveil.cli.command_line import main

__all__ = [
    "assess_commands",
    "check_command",
    "choose_command",
    "compare_command",
    "demo_command",
    "explore_command",
    "infer_command",
    "init_command",
    "intervals_command",
    "main",
    "package_command",
    "postprocess_command",
    "price_command",
    "release_command",
    "report_command",
    "reproduce_command",
    "status_command",
    "verify_command",
]
