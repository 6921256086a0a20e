"""What stands in for `view` in the tests of the command."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console


@dataclass
class Stand:
    """Stands in for `headwise.verbs.view`, whose own tests use real models: what was it asked?"""

    calls: list[dict[str, Any]] = field(default_factory=list)
    fails: dict[int, Exception] = field(default_factory=dict)

    def view(self, model: str, text: str, *, notify: Callable[[str], None], **options: Any) -> str:
        notify("loading")
        given = {name: value for name, value in options.items() if value not in (None, (), False)}
        self.calls.append({"model": model, "text": text, **given})
        if len(self.calls) in self.fails:
            raise self.fails[len(self.calls)]
        return "the view"

    def Comparison(self, first: str, second: str) -> str:  # noqa: N802 (it stands in for a class)
        return f"{first} beside {second}"

    def open_model(self, model: str, *, notify: Callable[[str], None]) -> str:
        return f"opened {model}"

    def write_page(self, found: str, path: Path) -> Path:
        path.write_text(f"page of {found}", encoding="utf-8")
        return path

    def to_json(self, found: str, *, page: Path | None) -> dict[str, Any]:
        return {"found": found, "page": None if page is None else str(page)}

    def print_view(self, found: str, console: Console) -> None:
        console.print(f"table of {found} [bold]brackets[/bold]")
