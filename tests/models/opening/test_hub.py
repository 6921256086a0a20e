"""The hub: one question with a short wait, plain files only, and an earlier download without a network."""

from types import SimpleNamespace

import huggingface_hub
import pytest

from headwise.errors import ModelError
from headwise.models.opening import hub
from headwise.models.opening.hub import wanted_files
from headwise.models.opening.opened_model import open_model

from ...hang import must_end
from ..folders import save, tiny_llama


@pytest.fixture
def unreachable(monkeypatch):
    # Nothing listens on the discard port of this machine.
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


def test_a_hub_that_does_not_answer_is_told(unreachable):
    with (
        must_end(),
        pytest.raises(
            ModelError, match=r"org/name is no file, folder .*the hub gave no model of that id \(.*offline"
        ),
    ):
        open_model("org/name")


def test_a_hub_model_that_was_never_fetched_needs_a_network(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(
        ModelError, match=r"org/name was not downloaded before, and downloading is switched off"
    ):
        open_model("org/name", offline=True)


def test_an_earlier_download_opens_without_a_network(tmp_path, monkeypatch, minilm):
    commit = "a" * 40
    kept = tmp_path / "models--org--name"
    save(tiny_llama(), kept / "snapshots" / commit, tokenizer_from=minilm.folder)
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text(commit)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    opened = open_model("org/name", offline=True)
    assert (opened.source, opened.name) == ("hub", "org/name")
    assert opened.folder == kept / "snapshots" / commit


def test_a_download_asks_for_the_files_of_one_commit(tmp_path, monkeypatch, minilm):
    folder = save(tiny_llama(), tmp_path / "fetched", tokenizer_from=minilm.folder)
    names = [*(path.name for path in folder.iterdir()), "pytorch_model.bin", "onnx/model.onnx"]
    listed = SimpleNamespace(siblings=[SimpleNamespace(rfilename=name) for name in names], sha="b" * 40)
    asked = {}

    def fetch(repository, **options):
        asked.update(repository=repository, **options)
        return str(folder)

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, repository, **options: listed)
    monkeypatch.setattr(hub.huggingface_hub, "snapshot_download", fetch)
    told: list[str] = []
    assert open_model("org/name", notify=told.append).folder == folder
    assert asked["revision"] == "b" * 40
    assert "model.safetensors" in asked["allow_patterns"]
    assert not {"pytorch_model.bin", "onnx/model.onnx"} & set(asked["allow_patterns"])
    assert told == ["fetching org/name from the hub (kept for the next time)"]


def test_a_download_that_breaks_off_is_told(monkeypatch):
    listed = SimpleNamespace(siblings=[SimpleNamespace(rfilename="model.safetensors")], sha=None)

    def fetch(repository, **options):
        raise ConnectionError("the line went dead\nand more")

    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda self, repository, **options: listed)
    monkeypatch.setattr(hub.huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(ModelError, match=r"org/name could not be downloaded: the line went dead; try again"):
        open_model("org/name", notify=print)


def test_plain_files_of_the_top_folder_are_chosen():
    described = ["config.json", "tokenizer.json", "vocab.txt", "spiece.model", "chat_template.jinja"]
    others = ["README.md", "pytorch_model.bin", "modeling.py", "onnx/config.json", "model.h5"]
    fp16 = ["model.safetensors", "model.fp16.safetensors"]
    assert wanted_files("org/name", described + others + fp16) == ["model.safetensors", *described]
    parts = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    index = "model.safetensors.index.json"
    assert wanted_files("org/name", [*parts, "consolidated.safetensors", index]) == [*parts, index]
    assert wanted_files("org/name", ["other.safetensors"]) == ["other.safetensors"]


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["config.json", "pytorch_model.bin"], r"org/name holds only pickle checkpoints"),
        (["a.Q4.gguf", "README.md"], r"org/name holds GGUF files; download one and pass its path"),
        (["README.md", "sub/model.safetensors"], r"org/name holds no \.safetensors"),
    ],
)
def test_a_repository_without_plain_weights_is_refused(names, match):
    with pytest.raises(ModelError, match=match):
        wanted_files("org/name", names)
