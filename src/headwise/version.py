"""The version of headwise, on the ground floor so that any floor may quote it."""

__version__ = "0.1.0.dev0"
