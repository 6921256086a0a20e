"""docs/check.md holds the catalogue as it is, and its example prints what it says."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwise.cli import check_request, main
from headwise.verbs.check.faults import FAULTS

DOCUMENT = Path(__file__).parents[3] / "docs" / "check.md"
NUMBER = re.compile(r"\d\.\de[+-]\d\d")


def catalogue() -> Iterator[str]:
    """The lines of the table of faults, as they must stand."""
    yield "| fault | what was done | what to do |"
    yield "|---|---|---|"
    for fault in FAULTS:
        yield f"| `{fault.name}` | {fault.what} | {fault.mend} |"


def section(heading: str) -> str:
    return DOCUMENT.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_table_of_faults_is_the_catalogue() -> None:
    found = [line for line in section("The faults").splitlines() if line.startswith("|")]
    assert found == list(catalogue()), "\n".join(catalogue())


def test_the_catalogue_has_the_faults_that_are_promised() -> None:
    said = re.search(r"(\d+) faults", section("The faults"))
    assert said is not None
    assert int(said[1]) == len(FAULTS)


def test_the_example_prints_what_the_document_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = section("A port that runs, learns, and is wrong")
    code, keeping = re.findall(r"```python\n(.*?)```", told, re.DOTALL)
    command, shown = re.findall(r"```\n\$ headwise (.*?)\n(.*?)```", told, re.DOTALL)[0]
    (tmp_path / "grouped.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(command.split()) == 1
    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n"
    # The last digits of an error come from the order in which a processor adds.
    assert NUMBER.sub("N", printed) == NUMBER.sub("N", shown)
    rows = printed.split("Conventions, as measured\n")[1].split("\n\n")[0].splitlines()
    explained = section("The conventions")
    names = [re.split("  +", row)[0] for row in rows]
    assert [name for name in names if name and name not in explained] == ["given"]

    monkeypatch.syspath_prepend(tmp_path)
    namespace: dict[str, Any] = {}
    exec(keeping, namespace)  # noqa: S102 - the document's own
    monkeypatch.delitem(sys.modules, "grouped")
    with pytest.raises(AssertionError, match="kv-heads-tiled"):
        namespace["test_attention_is_right"]()

    mended = code.replace("key.repeat(1, groups, 1, 1)", "key.repeat_interleave(groups, dim=1)")
    mended = mended.replace("value.repeat(1, groups, 1, 1)", "value.repeat_interleave(groups, dim=1)")
    assert mended != code
    (tmp_path / "grouped.py").write_text(mended)
    assert main(command.split()) == 0


def test_the_options_that_the_document_names_are_there() -> None:
    named = set(re.findall(r"--([a-z][a-z-]*)", DOCUMENT.read_text())) - {"json", "no-causal"}
    known = {name.replace("_", "-") for options in check_request.OPTIONS_OF.values() for name in options}
    assert named <= known
