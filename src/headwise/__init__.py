"""headwise: see, test and trust every attention head."""

__version__ = "0.1.0.dev0"
