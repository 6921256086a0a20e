"""Tokenizers of other families, built small: each spelling is read back into text."""

import dataclasses

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headwise.errors import ModelError
from headwise.models.tokens.reading import read_text, readable_tokens
from headwise.models.tokens.spelling import byte_letters


def texts(tokens) -> list[str]:
    return [token.text for token in tokens]


def sentencepiece(*, fallback: bool = True) -> PreTrainedTokenizerFast:
    """A small tokenizer spelled as Llama's: a mark for a space, one before the text, bytes for the rest."""
    entries = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "T", "h", "e", "b", "a"]
    entries += ["▁T", "▁Th", "▁The", "▁b", "▁ba"]
    merges = [("▁", "T"), ("▁T", "h"), ("▁Th", "e"), ("▁", "b"), ("▁b", "a")]
    backend = Tokenizer(
        models.BPE(
            vocab={entry: place for place, entry in enumerate(entries)},
            merges=merges,
            unk_token="<unk>",  # noqa: S106 - a token of a vocabulary
            byte_fallback=fallback,
        )
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", bos_token="<s>")  # noqa: S106


def test_sentencepiece_is_read_without_its_marks(minilm):
    opened = dataclasses.replace(minilm, tokenizer=sentencepiece())
    ids, tokens = read_text(opened, "The  ba\né")
    assert [(token.text, token.kind) for token in tokens] == [
        ("The", "text"),
        (" ", "text"),
        (" ba", "text"),
        ("\n", "text"),
        ("⟨C3⟩", "bytes"),
        ("⟨A9⟩", "bytes"),
    ]
    assert readable_tokens(opened.tokenizer, ids) == tokens


def test_metaspace_is_read_without_its_marks(minilm):
    backend = Tokenizer(
        models.Unigram([("<unk>", 0.0), ("▁The", -1.0), ("▁ba", -1.0), ("nk", -1.0)], unk_id=0)
    )
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")  # noqa: S106 - a token
    ids, tokens = read_text(dataclasses.replace(minilm, tokenizer=tokenizer), "The bank")
    assert texts(tokens) == texts(readable_tokens(tokenizer, ids)) == ["The", " ba", "nk"]


def test_two_tokens_of_one_character_do_not_both_claim_it(minilm):
    # "½" is read as a one, a fraction slash and a two, and cut in the middle.
    backend = Tokenizer(models.Unigram([("<unk>", 0.0), ("a1", -1.0), ("\u20442b", -1.0)], unk_id=0))
    backend.normalizer = normalizers.NFKC()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")  # noqa: S106 - a token
    _, tokens = read_text(dataclasses.replace(minilm, tokenizer=tokenizer), "a½b")
    assert texts(tokens) == ["a1", "\u20442b"]


def test_word_ends_are_read_as_spaces(minilm):
    # As CLIP: bytes, lower case, and a mark where a word ends.
    vocabulary = {
        "t": 0,
        "h": 1,
        "e</w>": 2,
        "th": 3,
        "the</w>": 4,
        "b": 5,
        "a</w>": 6,
        "ba</w>": 7,
        "e": 8,
        "a": 9,
    }
    merges = [("t", "h"), ("th", "e</w>"), ("b", "a</w>")]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\s+"), "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    ids, tokens = read_text(dataclasses.replace(minilm, tokenizer=tokenizer), "The  BA")
    assert texts(tokens) == ["The", "  BA"]
    assert texts(readable_tokens(tokenizer, ids)) == ["the", " ba"]


def byte_level(*, prefix: bool) -> PreTrainedTokenizerFast:
    vocabulary = {letter: place for place, letter in enumerate(byte_letters())}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def test_a_space_put_before_the_text_is_not_shown(minilm):
    opened = dataclasses.replace(minilm, tokenizer=byte_level(prefix=True))
    assert texts(read_text(opened, "ab")[1]) == ["", "a", "b"]
    opened = dataclasses.replace(minilm, tokenizer=byte_level(prefix=False))
    assert texts(read_text(opened, " ab")[1]) == [" ", "a", "b"]


def test_an_added_word_is_read_as_it_stands(minilm):
    tokenizer = byte_level(prefix=False)
    tokenizer.add_tokens(["Ġthink é"])
    _, tokens = read_text(dataclasses.replace(minilm, tokenizer=tokenizer), "aĠthink éb")
    assert [(token.text, token.kind) for token in tokens] == [
        ("a", "text"),
        ("Ġthink é", "text"),
        ("b", "text"),
    ]


def test_the_byte_alphabet_has_a_letter_for_each_byte():
    letters = byte_letters()
    assert sorted(letters.values()) == list(range(256))
    assert (letters["Ġ"], letters["Ċ"], letters["a"], letters["ł"]) == (0x20, 0x0A, 0x61, 0xA0)


def test_a_tokenizer_that_panics_is_an_error_of_the_model(minilm, capfd):
    # The library gives up on this pattern with a panic, which derives from BaseException.
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    panics = dataclasses.replace(minilm, tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend))
    with pytest.raises(ModelError, match=r"the tokenizer failed on this text: "):
        read_text(panics, "a" * 60 + "b")
