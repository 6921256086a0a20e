"""The few kinds of error headwise raises.

Every message says what was given, what is allowed, and how to mend it. The command line prints the message
alone and exits with code 2; a library caller catches `HeadwiseError` or one of its kinds.
"""


class HeadwiseError(Exception):
    """The base of every error headwise raises on purpose."""


class ArgumentError(HeadwiseError, ValueError):
    """An argument has a value, shape or type that is not allowed."""


class UnsupportedError(HeadwiseError):
    """What was asked for is well formed, but the named implementation or model family cannot do it."""


class ModelError(HeadwiseError):
    """A model cannot be found, downloaded, read or trusted."""


class MismatchError(HeadwiseError):
    """A result was held against its reference and differs by more than is allowed."""


class SubjectError(HeadwiseError):
    """The attention that `check` examines raised, or returned nothing that can be compared."""
