"""GGUF files: sound ones come out exact, hostile ones are refused quickly and by name."""

import json
import os
import select
import subprocess
import sys

import pytest
import torch

from headwise.errors import ModelError, UnsupportedError
from headwise.models.opening import gguf_convert
from headwise.models.opening import gguf_folder as folders_of_gguf
from headwise.models.opening.gguf_folder import convert, gguf_folder
from headwise.models.opening.gguf_header import read_gguf_header
from headwise.models.opening.opened_model import open_model
from headwise.models.tokens.reading import read_text, tokenize

from ..folders import llama_pairs, llama_weights, tiny_gguf, tiny_llama
from ..gguf_writer import ARCHITECTURE, STRING, U32, header, pair, tensor, write_gguf


@pytest.fixture(scope="module")
def opened_gguf(tmp_path_factory):
    place = tmp_path_factory.mktemp("gguf")
    # None of these may be read: the file alone was named.
    (place / "adapter_config.json").write_text(
        '{"base_model_name_or_path": "org/other", "peft_type": "LORA"}'
    )
    (place / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": ["code.Tokenizer", null]}}')
    (place / "generation_config.json").write_text('{"eos_token_id": 5}')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWISE_CACHE", str(place / "cache"))
        notices: list[str] = []
        yield open_model(tiny_gguf(place / "tiny.gguf"), notify=notices.append), notices, place


def test_a_gguf_file_gives_the_model_it_was_written_from(opened_gguf):
    opened, notices, place = opened_gguf
    ids = torch.tensor([[1, 5, 300, 17, 44, 2, 91]])
    with torch.no_grad():
        assert torch.equal(opened.model(ids).logits, tiny_llama()(ids).logits)
    assert opened.source == "gguf"
    assert opened.folder.is_relative_to(place / "cache" / "models")
    assert [notice for notice in notices if notice.startswith("converting tiny.gguf (0.1 MB)")]


def test_the_converted_folder_is_plain(opened_gguf):
    opened, _, _ = opened_gguf
    config = json.loads((opened.folder / "config.json").read_text())
    assert "quantization_config" not in config
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert opened.model.config.tie_word_embeddings
    assert {type(module) for name, module in opened.model.named_modules() if name.endswith("_proj")} == {
        torch.nn.Linear
    }
    assert {weight.dtype for weight in opened.model.parameters()} == {torch.float32}
    assert opened.tokenizer.model_max_length == 67


def test_digits_are_cut_off_before_spaces_are_joined(opened_gguf):
    # transformers cuts "smollm" as GPT-2, which leaves the last space to the number: "in", " ", " 2".
    opened, _, _ = opened_gguf
    _, tokens = read_text(opened, "in  23")
    assert [token.text for token in tokens] == ["in", "  ", "2", "3"]


def test_the_second_time_a_gguf_file_is_only_hashed(opened_gguf, monkeypatch):
    opened, _, place = opened_gguf
    monkeypatch.setenv("HEADWISE_CACHE", str(place / "cache"))
    again: list[str] = []
    monkeypatch.setattr(folders_of_gguf, "convert", None)  # a second conversion would call it
    assert open_model(place / "tiny.gguf", notify=again.append).folder == opened.folder
    assert again == []


def test_a_gguf_file_without_its_suffix_is_known_by_its_start(opened_gguf, monkeypatch):
    opened, _, place = opened_gguf
    monkeypatch.setenv("HEADWISE_CACHE", str(place / "cache"))
    blob = place / "sha256-1234"
    blob.write_bytes((place / "tiny.gguf").read_bytes())
    assert open_model(blob).folder == opened.folder


def test_nothing_beside_a_gguf_file_is_looked_at(opened_gguf):
    opened, _, _ = opened_gguf
    assert opened.model.generation_config.eos_token_id == 2
    assert tokenize(opened, "in the").shape == (1, 2)


def test_a_tokenizer_that_would_come_out_wrong_is_refused(tmp_path, cache):
    with pytest.raises(UnsupportedError, match=r"tiny\.gguf cuts text as tokenizer.ggml.pre='kimi-k2'"):
        open_model(tiny_gguf(tmp_path / "tiny.gguf", pre="kimi-k2"))


def test_a_gguf_file_that_lacks_weights_is_refused(tmp_path, cache):
    model = tiny_llama()
    weights = llama_weights(model)
    del weights["blk.1.attn_v.weight"]
    source = write_gguf(tmp_path / "part.gguf", llama_pairs(model), weights)
    with pytest.raises(
        ModelError, match=r"part\.gguf.*lacks 1 of the model's weights, first .*layers\.1\.self_attn\.v_proj"
    ):
        open_model(source)


def test_a_large_file_of_an_unknown_architecture_is_refused_by_name(tmp_path):
    source = write_gguf(tmp_path / "odd.gguf", [pair("general.architecture", STRING, "oddnet")], {})
    # With a hole, more than the memory that reading a header is given; a file is mapped, and that counts too.
    os.truncate(source, 3 << 30)
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(ModelError, match=r"odd\.gguf cannot be converted: .*oddnet"):
        convert(source, folder, tmp_path, notify=print)


def without(pairs: list[bytes], key: str) -> list[bytes]:
    return [entry for entry in pairs if key.encode() not in entry]


def test_sizes_that_promise_more_than_the_weights_meet_the_memory_limit(tmp_path, cache):
    model = tiny_llama()
    pairs = without(llama_pairs(model), "llama.feed_forward_length")
    pairs.append(pair("llama.feed_forward_length", U32, 1 << 26))
    weights = {name: weight for name, weight in llama_weights(model).items() if "ffn_" not in name}
    with pytest.raises(
        ModelError, match=r"big\.gguf cannot be converted: it takes more memory than there is"
    ):
        open_model(write_gguf(tmp_path / "big.gguf", pairs, weights))


def test_more_layers_than_tensors_are_refused(tmp_path):
    pairs = without(llama_pairs(tiny_llama()), "llama.block_count")
    pairs.append(pair("llama.block_count", U32, 1 << 20))
    source = write_gguf(tmp_path / "deep.gguf", pairs, llama_weights(tiny_llama()))
    with pytest.raises(ModelError, match=r"deep\.gguf says it has 1048576 layers, and holds 29 tensors"):
        gguf_convert._check_size(source, read_gguf_header(source))


def test_reading_ends_after_the_time_allowed(tmp_path):
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    with pytest.raises(ModelError, match=r"tiny\.gguf: reading it was stopped after 0\.1 seconds"):
        convert(tiny_gguf(tmp_path / "tiny.gguf"), folder, scratch, notify=print, seconds=0.1)


def test_an_unreadable_file_is_refused(tmp_path, cache):
    with pytest.raises(ModelError, match=r"missing\.gguf cannot be read: No such file"):
        gguf_folder(tmp_path / "missing.gguf", notify=print)


def test_a_reader_killed_from_outside_is_reported(tmp_path, monkeypatch):
    folder, scratch = tmp_path / "folder", tmp_path / "scratch"
    folder.mkdir()
    scratch.mkdir()
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(killed))
    with pytest.raises(ModelError, match=r"ended by SIGKILL, as when memory runs out"):
        convert(tiny_gguf(tmp_path / "tiny.gguf"), folder, scratch, notify=print)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_the_reader_ends_when_the_process_that_waits_for_it_is_killed(tmp_path):
    # The reader waits for the other end of the pipe: it is at work for as long as this test needs.
    os.mkfifo(tmp_path / "endless.gguf")
    reader = [sys.executable, "-m", "headwise.models.opening.gguf_convert", "endless.gguf", "folder"]
    start = f"import subprocess\nsubprocess.run({reader!r}, check=False)"
    with subprocess.Popen([sys.executable, "-c", start], cwd=tmp_path) as parent:
        writing = os.open(tmp_path / "endless.gguf", os.O_WRONLY)
        parent.kill()
    waiting = select.poll()
    waiting.register(writing, 0)
    found = waiting.poll(20_000)
    os.close(writing)  # a reader that lived on meets the end of the file here
    assert found == [(writing, select.POLLERR)]


@pytest.mark.parametrize(
    ("script", "match"),
    [
        ("echo one >&2; echo 'last word' >&2; exit 1", r"the reading process failed \(last word\)"),
        ("exit 1", r"the reading process failed \(without a word\)"),
        ("kill -XCPU $$", r"more processor time than it was given"),
    ],
)
def test_a_reader_that_fails_is_reported(tmp_path, monkeypatch, script, match):
    failing = tmp_path / "python"
    failing.write_text(f"#!/bin/sh\n{script}\n")
    failing.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(failing))
    with pytest.raises(ModelError, match=match):
        convert(tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "folder", tmp_path, notify=print)


def test_more_weights_than_this_machine_has_memory_are_refused_before_reading(tmp_path, cache):
    elements = 1 << 41
    start = header([ARCHITECTURE], [tensor("w", (elements // 16, 16), kind=0)])
    source = tmp_path / "huge.gguf"
    source.write_bytes(start + bytes(-len(start) % 32))
    # A file with a hole: it has the size, and takes no room.
    os.truncate(source, 32 * (len(start) // 32 + 1) + 4 * elements)
    with pytest.raises(ModelError, match=rf"holds {elements} weights"):
        gguf_convert._check_size(source, read_gguf_header(source))
