"""A text that `explain MODEL` is run on, and what it tells of it."""

import io

from rich.console import Console

from headwise.verbs.explain_model import ModelTrace
from headwise.verbs.explain_model.render_text import print_trace

TEXT = "The bank raised rates because inflation was"


def told(found: ModelTrace, width: int = 80) -> str:
    stream = io.StringIO()
    print_trace(found, Console(file=stream, width=width, markup=False, highlight=False, emoji=False))
    return stream.getvalue()
