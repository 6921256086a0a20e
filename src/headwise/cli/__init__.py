"""The command line: arguments in, a verb, a table or one JSON document out, and nothing else."""

from headwise.cli.frame import main

__all__ = ["main"]
