"""`countveil assess`: what a plan or a release discloses, one command per lens."""

from countveil.cli.assess_commands import (
    homogeneity_command,
    loss_command,
    map_command,
    presence_command,
    public_command,
    published_command,
    published_homogeneity_command,
    reconstruction_command,
)

__all__ = [
    "homogeneity_command",
    "loss_command",
    "map_command",
    "presence_command",
    "public_command",
    "published_command",
    "published_homogeneity_command",
    "reconstruction_command",
]
