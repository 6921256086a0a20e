"""A config describes a model; it chooses no code, no kernel and no other file."""

import json

import pytest

from headwise.errors import ModelError
from headwise.models.opening.config_file import MAX_LAYERS, read_config, read_json

LLAMA = {"model_type": "llama", "hidden_size": 24, "num_attention_heads": 6, "num_hidden_layers": 3}


@pytest.fixture
def folder(tmp_path):
    def write(content) -> object:
        raw = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / "config.json").write_text(raw)
        return tmp_path

    return write


@pytest.mark.parametrize(
    "key",
    [
        "_attn_implementation_internal",  # CVE-2026-4372: named a hub repository, whose code was run
        "_attn_implementation",
        "attn_implementation",
        "_experts_implementation_internal",
        "experts_implementation",
        "kernel_config",
        "use_kernels",
        "fusion_config",
        "distributed_config",
        "transformers_weights",
        "name_or_path",
        "_name_or_path",
        "_anything_private",
    ],
)
def test_fields_that_choose_code_or_files_never_reach_transformers(folder, key):
    config = read_config(folder(LLAMA | {key: "org/evil"}))
    assert config.hidden_size == 24
    assert config._attn_implementation is None
    assert "org/evil" not in json.dumps(config.to_dict(), default=str)
    assert getattr(config, key, None) != "org/evil"


def test_fields_of_nested_configs_are_dropped_too(folder):
    vision = {"model_type": "clip_vision_model", "hidden_size": 36, "num_attention_heads": 4}
    text = LLAMA | {"_attn_implementation_internal": "org/evil", "attn_implementation": {"": "org/evil"}}
    config = read_config(folder({"model_type": "llava", "text_config": text, "vision_config": vision}))
    assert config.text_config.hidden_size == 24
    assert config.text_config._attn_implementation is None
    assert "evil" not in json.dumps(config.to_dict(), default=str)


def test_what_describes_the_model_stays(folder):
    rotary = {"rope_theta": 77.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}}
    config = read_config(
        folder(LLAMA | rotary | {"hidden_act": "gelu", "architectures": ["LlamaForCausalLM"]})
    )
    assert config.rope_parameters["rope_theta"] == 77.0
    assert config.rope_parameters["factor"] == 3.0
    assert (config.hidden_act, config.architectures) == ("gelu", ["LlamaForCausalLM"])


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            LLAMA | {"auto_map": {"AutoModel": "code.Model"}},
            r"config\.json asks to run Python .*auto_map",
        ),
        ({"model_type": "x", "part": [{"auto_map": {"A": "b.C"}}]}, r"asks to run Python code"),
        (
            LLAMA | {"quantization_config": {"quant_method": "gptq"}},
            r"packed weights \(quant_method='gptq'\)",
        ),
        (LLAMA | {"compression_config": "odd"}, r"packed weights \(quant_method='odd'\)"),
        (
            LLAMA | {"model_type": "no_such_model"},
            r"model_type='no_such_model', which transformers",
        ),
        ({"hidden_size": 3}, r"model_type=None"),
        ({"model_type": ["llama"]}, r"model_type=\['llama'\]"),
        (LLAMA | {"hidden_size": "wide"}, r"is no config that transformers accepts: "),
        (LLAMA | {"num_hidden_layers": MAX_LAYERS + 1}, r"describes 10001 layers, and at most 10000"),
        ("[1, 2]", r"holds a JSON list, and must hold an object"),
        ("{", r"is not valid JSON"),
        ("[" * 200_000, r"is not valid JSON"),
    ],
)
def test_a_config_that_cannot_be_trusted_or_understood_is_refused(folder, content, match):
    with pytest.raises(ModelError, match=match) as refused:
        read_config(folder(content))
    assert "config.json" in str(refused.value)
    assert len(str(refused.value)) < 700


def test_a_json_file_of_any_size_is_not_read(tmp_path):
    path = tmp_path / "big.json"
    path.write_bytes(b"{" + b" " * 25_000_000 + b"}")
    with pytest.raises(ModelError, match=r"big\.json has 25000002 bytes, and at most 25000000 are read"):
        read_json(path)


def test_a_json_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ModelError, match=r"config\.json cannot be read: No such file"):
        read_json(tmp_path / "config.json")
