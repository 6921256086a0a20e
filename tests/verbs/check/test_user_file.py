"""A user's file is imported as it would be by its own project, and each error says where it is."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwise.errors import ArgumentError
from headwise.verbs.check.user_file import load_from_file


@pytest.fixture(autouse=True)
def modules_as_before(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def written(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_file_sees_what_lies_beside_it() -> None:
    written("project/helper_of_mine.py", "def mine(): return 'helped'")
    file = written("project/attention_of_mine.py", "from helper_of_mine import mine as attend")
    assert load_from_file(file, "attend")() == "helped"


def test_a_file_in_a_package_may_import_relatively() -> None:
    written("src/some_package/__init__.py", "")
    written("src/some_package/layers/__init__.py", "")
    written("src/some_package/common.py", "def mine(): return 'helped'")
    file = written("src/some_package/layers/attention.py", "from ..common import mine as attend")
    found = load_from_file(file, "attend")
    assert found() == "helped"
    assert found.__module__ == "some_package.common"


def test_a_package_itself_may_be_named() -> None:
    file = written("named_package/__init__.py", "from .inside import attend")
    written("named_package/inside.py", "def attend(): return 'inside'")
    assert load_from_file(file, "attend")() == "inside"


def test_a_file_with_the_name_of_another_module_does_not_take_its_place() -> None:
    file = written("json.py", "import json as other\ndef attend(): return other.__name__")
    json = sys.modules["json"]
    assert load_from_file(file, "attend")() == "json"
    assert sys.modules["json"] is json


def test_a_package_with_the_name_of_another_does_not_hide_the_file() -> None:
    written("json/__init__.py", "")
    file = written("json/decoder.py", "def attend(): return 'mine'")
    assert load_from_file(file, "attend")() == "mine"


def test_a_file_may_be_no_identifier_and_may_look_itself_up() -> None:
    file = written(
        "my-attention 2.py",
        "import dataclasses, sys\n@dataclasses.dataclass\nclass Mine:\n  x: int = 3\n"
        "def attend(): return sys.modules[__name__].Mine().x",
    )
    assert load_from_file(file, "attend")() == 3


def test_what_runs_only_as_a_program_does_not_run() -> None:
    file = written("program.py", "def attend(): return 1\nif __name__ == '__main__':\n  raise SystemExit(3)")
    assert load_from_file(file, "attend")() == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", "f.py cannot be imported: SyntaxError: invalid syntax (line 1 of f.py)"),
        ("\n\nx = 1 / 0", "f.py cannot be imported: ZeroDivisionError: division by zero (line 3 of f.py)"),
        (
            "\ndef g():\n  raise KeyError\ng()",
            "f.py cannot be imported: KeyError (line 3 of f.py)",
        ),
        (
            "\nimport nonesuch.module",
            "f.py cannot be imported: ModuleNotFoundError: No module named 'nonesuch' (line 2 of f.py); "
            f"install it for {sys.executable}, or run headwise from the environment that has it",
        ),
        (
            "from .other import x",
            "f.py cannot be imported: ImportError: attempted relative import with no known parent package "
            "(line 1 of f.py); its folder lacks an __init__.py, which would make it a part of a package",
        ),
        (
            "import sys\nsys.exit('bye')",
            "f.py ends the program while it is imported (line 2 of f.py); put what is to run only as a "
            'program under: if __name__ == "__main__":',
        ),
        ("raise KeyboardInterrupt", "f.py cannot be imported: KeyboardInterrupt (line 1"),
        ("def f(): return f()\nf()", "f.py cannot be imported: RecursionError: maximum recursion depth"),
        ("x = '\0'", "f.py cannot be imported: SyntaxError: source code"),
        ("class E(Exception): ...\nraise E('one\\ntwo')", "f.py cannot be imported: E: one (line 2 of f.py)"),
    ],
)
def test_a_file_that_does_not_import_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        load_from_file(written("f.py", text), "attend")


def test_an_error_beside_the_file_is_told_with_the_line_that_led_there() -> None:
    written("beside_the_file.py", "\n\n\n1 / 0")
    file = written("f.py", "\nimport beside_the_file")
    with pytest.raises(ArgumentError, match=r"ZeroDivisionError: division by zero \(line 2 of f\.py\)"):
        load_from_file(file, "attend")


def test_an_error_of_the_package_around_the_file_is_told_with_its_place() -> None:
    written("broken_package/__init__.py", "\n1 / 0")
    file = written("broken_package/f.py", "def attend(): ...")
    message = r"^broken_package/f\.py cannot be imported: ZeroDivisionError: division by zero \(at "
    with pytest.raises(ArgumentError, match=message + r".*broken_package/__init__\.py:2 \(1 / 0\)\)$"):
        load_from_file(file, "attend")


def test_a_file_that_is_not_utf_8_is_told() -> None:
    Path("f.py").write_bytes(b"x = '\xff'\n")
    with pytest.raises(ArgumentError, match=r"f\.py cannot be imported: SyntaxError: \(unicode error\)"):
        load_from_file(Path("f.py"), "attend")


NAMES = "import math\nfrom os.path import join\ndef attend(): ...\nclass Attention: ...\nscale = 3\n_f = len"


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (NAMES, "atend", "f.py has no atend (did you mean attend?); it has attend, Attention"),
        (NAMES, "zzz", "f.py has no zzz; it has attend, Attention"),
        (NAMES, "", "f.py was named, and not what to check in it; write f.py:NAME: it has attend, Attention"),
        (NAMES, "scale", "scale in f.py is of type int and cannot be called; name a function, a class or a "),
        (NAMES, "math", "math in f.py is of type module and cannot be called"),
        ("x = 1", "attend", "f.py has no attend; it has nothing that can be called"),
        ("from os.path import join", "attend", "f.py has no attend; it has join"),
        (
            "\n".join(f"def f{place}(): ..." for place in range(20)),
            "attend",
            "f.py has no attend; it has f0, f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, f11 and 8 more",
        ),
    ],
)
def test_a_name_that_is_not_there_is_told_with_those_that_are(text: str, name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{re.escape(message)}"):
        load_from_file(written("f.py", text), name)


def test_private_names_and_imported_ones_can_be_named_all_the_same() -> None:
    file = written("f.py", NAMES)
    assert load_from_file(file, "_f") is len
    assert load_from_file(file, "join")("a", "b") == "a/b"


def test_a_file_that_no_loader_takes_is_refused() -> None:
    message = r"^f\.txt cannot be imported: ImportError: f\.txt is no Python file"
    with pytest.raises(ArgumentError, match=message):
        load_from_file(written("f.txt", ""), "attend")
