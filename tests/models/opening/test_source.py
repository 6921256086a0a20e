"""What the user names is recognised, or refused with what was meant and what is allowed."""

import os
from pathlib import Path

import pytest

from headwise.errors import ArgumentError, ModelError
from headwise.models.opening.opened_model import open_model
from headwise.models.opening.source import find_source


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def touch(name: str, content: bytes = b"") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_catalogue_name_wins_over_a_file_of_that_name(here):
    Path("minilm-l6").mkdir()
    assert find_source("minilm-l6").kind == "catalogue"
    assert find_source("./minilm-l6").path == here / "minilm-l6"
    assert find_source(Path("minilm-l6")).kind == "folder"


def test_a_hub_id_is_one_unless_such_a_file_is_there(here):
    assert find_source("org/name").kind == "hub"
    assert find_source("org/name-1.5_x").kind == "hub"
    touch("org/name", b"GGUF")
    assert find_source("org/name").kind == "gguf"


def test_folders_and_files_are_recognised(here, monkeypatch):
    touch("model/a.safetensors")
    touch("b.GGUF")
    assert find_source("model").path == here / "model"
    single = find_source("model/a.safetensors")
    assert (single.kind, single.path, single.weights) == (
        "folder",
        here / "model",
        here / "model/a.safetensors",
    )
    assert find_source("b.GGUF").kind == "gguf"
    monkeypatch.setenv("HOME", str(here))
    assert find_source("~/model").path == here / "model"


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ("minilm", r"no model 'minilm' \(did you mean minilm-l6\?\).*smollm2-135m, minilm-l6, toy-induction"),
        ("smolm2", r"did you mean smollm2-135m\?"),
        ("induction", r"did you mean toy-induction\?"),
        (
            "xyzzy",
            r"no model 'xyzzy'; pass a name of the catalogue \(smollm2-135m, minilm-l6, toy-induction\)",
        ),
        ("./missing", r"there is no file or folder \./missing; pass"),
        ("org/missing.gguf", r"there is no file or folder org/missing\.gguf"),
        ("a/b/c", r"there is no file or folder a/b/c"),
        (Path("minilm-l6"), r"there is no file or folder minilm-l6"),
        ("x" * 5000, r"cannot be looked at: File name too long"),
    ],
)
def test_an_unknown_model_is_refused_with_the_choices(given, match):
    with pytest.raises(ModelError, match=match) as refused:
        open_model(given)
    assert len(str(refused.value)) < 700


@pytest.mark.parametrize(
    ("given", "match"),
    [("", "names no model"), ("  ", "names no model"), ("a\0b", "names no model"), (7, "source=7 is a int")],
)
def test_no_name_at_all_is_refused(given, match):
    with pytest.raises(ArgumentError, match=match):
        open_model(given)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "model.pt", "model.PTH", "last.ckpt", "m.pkl", "m.pickle"]
)
def test_a_pickle_is_refused_with_the_way_to_convert_it(name):
    touch(name, b"\x80\x04never read")
    with pytest.raises(ModelError, match=rf"{name} is a pickle checkpoint: .*run any code.*save_pretrained"):
        open_model(name)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pth", "consolidated.00.pt"])
def test_a_folder_of_pickles_is_refused(name):
    touch("folder/config.json", b'{"model_type": "llama"}')
    touch(f"folder/{name}", b"\x80\x04never read")
    with pytest.raises(ModelError, match=rf"folder/{name} is a pickle checkpoint"):
        open_model("folder")


def test_a_file_of_another_kind_is_refused():
    touch("notes.txt", b"hello")
    with pytest.raises(ModelError, match=r"notes\.txt is no model file: it is neither"):
        open_model("notes.txt")


def test_what_is_no_regular_file_is_refused():
    os.mkfifo("pipe.gguf")
    with pytest.raises(ModelError, match=r"pipe\.gguf is neither a folder nor a regular file"):
        open_model("pipe.gguf")


def test_a_file_that_may_not_be_read_is_refused(monkeypatch):
    path = touch("secret.gguf", b"GGUF")

    def denied(self: Path, *arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(ModelError, match=r"secret\.gguf cannot be looked at: Permission denied"):
        find_source(path)
