"""The command line: one module per command group, nothing heavy imported before a command needs it."""

from interp.apps.cli.app import main

__all__ = ["main"]
