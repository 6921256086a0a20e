"""The byte-level tokenizer of a GGUF file is the one its model was trained with, or it is refused."""

import pytest

from headwise.errors import ModelError, UnsupportedError
from headwise.models.opening.gguf_header import read_gguf_header
from headwise.models.opening.gguf_tokenizer import CUTTINGS, byte_level_tokenizer

from ..folders import llama_pairs, tiny_llama
from ..gguf_writer import BOOL, I32, STRING, U32, array, header, pair


@pytest.fixture
def build(tmp_path):
    """Build the tokenizer of a tiny file, with some of its metadata replaced."""

    def from_pairs(*changed: bytes, pre: str = "smollm"):
        def key(entry: bytes) -> bytes:
            return entry[8 : 8 + entry[0]]

        replaced = {key(entry) for entry in changed}
        pairs = [entry for entry in llama_pairs(tiny_llama(), pre=pre) if key(entry) not in replaced]
        source = tmp_path / "tiny.gguf"
        source.write_bytes(header([*pairs, *changed], []))
        return byte_level_tokenizer(source, read_gguf_header(source))

    return from_pairs


def tokens_of(tokenizer, text: str) -> list[str]:
    return tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"])


@pytest.mark.parametrize(
    ("pre", "tokens"),
    [
        ("smollm", ["Ġthe", "ĠĠ", "2", "0", "Ċ", "Ġin"]),
        ("gpt-2", ["Ġthe", "Ġ", "Ġ", "2", "0", "Ċ", "Ġin"]),
        ("qwen2", ["Ġthe", "Ġ", "Ġ", "2", "0", "Ċ", "Ġin"]),
        ("llama-bpe", ["<s>", "Ġthe", "Ġ", "Ġ", "2", "0", "Ċ", "Ġin"]),
    ],
)
def test_text_is_cut_as_the_family_cuts_it(build, pre, tokens):
    assert tokens_of(build(pre=pre), " the  20\n in") == tokens


def test_pieces_of_up_to_three_digits_are_those_of_llama_3(build):
    cut = {
        pre: build(pre=pre).backend_tokenizer.pre_tokenizer
        for pre in ("smollm", "qwen2", "llama-bpe", "gpt-2")
    }
    pieces = {pre: [piece for piece, _ in way.pre_tokenize_str("a 12345")] for pre, way in cut.items()}
    assert pieces == {
        "smollm": ["a", "Ġ", "1", "2", "3", "4", "5"],
        "qwen2": ["a", "Ġ", "1", "2", "3", "4", "5"],
        "llama-bpe": ["a", "Ġ", "123", "45"],
        "gpt-2": ["a", "Ġ12345"],
    }


def test_whole_pieces_of_the_vocabulary_are_taken_whatever_the_merges_say(build):
    no_merges = array("tokenizer.ggml.merges", STRING, [])
    assert tokens_of(build(no_merges, pre="llama-bpe"), "the") == ["<s>", "the"]
    assert tokens_of(build(no_merges, pre="smollm"), "the") == ["t", "h", "e"]


def test_composed_characters_are_those_of_qwen(build):
    assert tokens_of(build(pre="qwen2"), "e\u0301") == ["Ã", "©"]
    assert tokens_of(build(pre="smollm"), "e\u0301") == ["e", "Ì", "ģ"]


def test_marks_of_beginning_and_end_are_put_where_the_file_asks(build):
    yes = pair("tokenizer.ggml.add_eos_token", BOOL, True)
    no = pair("tokenizer.ggml.add_bos_token", BOOL, False)
    assert tokens_of(build(yes), "the") == ["the", "</s>"]
    assert tokens_of(build(no, pre="llama-bpe"), "the") == ["the"]
    both = build(yes, pre="llama-bpe")
    assert both.convert_ids_to_tokens(both("the", "in")["input_ids"]) == [
        "<s>",
        "the",
        "</s>",
        "<s>",
        "in",
        "</s>",
    ]


def test_added_tokens_are_matched_as_they_stand(build):
    tokens = [*"abcde", "<unk>", "<s>", "</s>", "<think é>"]
    changed = (
        array("tokenizer.ggml.tokens", STRING, tokens),
        array("tokenizer.ggml.token_type", I32, [1] * 5 + [3, 3, 3, 4]),
        array("tokenizer.ggml.merges", STRING, []),
        pair("tokenizer.ggml.unknown_token_id", U32, 5),
        pair("tokenizer.ggml.bos_token_id", U32, 6),
        pair("tokenizer.ggml.eos_token_id", U32, 7),
        pair("tokenizer.ggml.padding_token_id", U32, 7),
        pair("tokenizer.chat_template", STRING, "{{ messages }}"),
    )
    tokenizer = build(*changed)
    assert tokens_of(tokenizer, "a<think é>b</s>") == ["a", "<think é>", "b", "</s>"]
    assert tokenizer.all_special_ids == [6, 7, 5]
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    assert (tokenizer.unk_token, tokenizer.pad_token) == ("<unk>", "</s>")
    assert tokenizer.chat_template == "{{ messages }}"
    assert tokenizer.model_max_length == 67
    assert not tokenizer.added_tokens_decoder[8].special


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        (array("tokenizer.ggml.tokens", STRING, []), r"tiny\.gguf has 0 tokens and 307 kinds of token"),
        (array("tokenizer.ggml.token_type", I32, [1, 1]), r"tiny\.gguf has 307 tokens and 2 kinds of token"),
        (
            pair("tokenizer.ggml.bos_token_id", U32, 307),
            r"tokenizer\.ggml\.bos_token_id is 307 of 307 tokens",
        ),
        (pair("tokenizer.ggml.eos_token_id", STRING, "x"), r"tokenizer\.ggml\.eos_token_id is 'x'"),
    ],
)
def test_a_vocabulary_that_contradicts_itself_is_refused(build, changed, match):
    with pytest.raises(ModelError, match=match):
        build(changed)


@pytest.mark.parametrize("pre", ["kimi-k2", "default"])
def test_a_way_of_cutting_that_is_not_known_is_refused_with_those_that_are(build, pre):
    with pytest.raises(
        UnsupportedError, match=rf"tiny\.gguf cuts text as .*pre='{pre}' .*Known are gpt-2, phi-2"
    ):
        build(pre=pre)
    assert {"smollm", "llama-bpe", "qwen2"} < set(CUTTINGS)
