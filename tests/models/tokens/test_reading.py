"""Tokens as a person reads them: nothing of the vocabulary's spelling, nothing of the text lost."""

import dataclasses
import re

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from transformers import BloomConfig, BloomModel, RobertaConfig, RobertaModel

from headwise.errors import ArgumentError, ModelError, UnsupportedError
from headwise.models.tokens.reading import Token, max_positions, read_text, readable_tokens, tokenize

from .. import folders

# The bytes that SmolLM2's vocabulary has no entry for.
LOST = bytes([0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xF1, 0xF2])

any_text = st.text(
    st.characters(exclude_categories=["Cs"]).filter(lambda c: not set(c.encode()) & set(LOST)), min_size=1
).filter(lambda text: text.strip() and "<" not in text)


def texts(tokens) -> list[str]:
    return [token.text for token in tokens]


def as_bytes(token: Token) -> bytes:
    """Turn a token's text back to bytes: the hexadecimal parts of a broken character, the rest as it is."""
    if token.kind != "bytes":
        return token.text.encode()
    parts = re.split(r"⟨((?:[0-9A-F]{2} ?)+)⟩", token.text)
    return b"".join(bytes.fromhex(part) if place % 2 else part.encode() for place, part in enumerate(parts))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_text)
@example("naïve café 🤗👩‍👩‍👧 你好 שלום مرحبا e\u0301\u0323 a\tb\r\n\x00\x7f\u200b\ufeff ⟨x⟩  2023 ")
def test_the_tokens_of_a_byte_level_tokenizer_put_together_are_the_text(smollm2, text):
    ids, tokens = read_text(smollm2, text)
    assert b"".join(map(as_bytes, tokens)) == text.encode()
    assert ids == tuple(token.id for token in tokens)
    assert readable_tokens(smollm2.tokenizer, ids) == tokens
    assert smollm2.tokenizer.decode(ids) == text


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(any_text.filter(lambda text: "[" not in text))
@example("The Bänk's  rising\tinternationalisation 你好 🤗 e\u0301 ①Å 짐")
def test_the_tokens_of_word_pieces_are_slices_of_the_text(minilm, text):
    try:
        ids, tokens = read_text(minilm, text)
    except ArgumentError as error:
        # Such as a text of controls alone, which the tokenizer makes nothing of.
        assert "makes a token of" in str(error)  # noqa: PT017 - most texts do not raise
        return
    assert ids == tuple(token.id for token in tokens)
    normal = minilm.tokenizer.backend_tokenizer.normalizer.normalize_str(text)
    place = 0
    for token in tokens[1:-1]:
        if token.kind == "text" and token.text in text[place:]:
            place = text.index(token.text, place) + len(token.text)
        elif token.kind == "text":
            # One character that became several tokens.
            assert token.text.strip() in normal


def test_the_pieces_of_one_character_each_show_their_own(minilm):
    _, tokens = read_text(minilm, "a  짐 b")
    assert texts(tokens) == ["[CLS]", "a", "  \u110c", "\u1175", "\u11b7", " b", "[SEP]"]


def test_the_tokens_of_a_sentence_are_its_words(smollm2, minilm):
    sentence = "The bank raised rates because inflation was rising"
    _, tokens = read_text(smollm2, sentence)
    words = ["The", " bank", " raised", " rates", " because", " inflation", " was", " rising"]
    assert texts(tokens) == words
    assert {token.kind for token in tokens} == {"text"}
    _, tokens = read_text(minilm, sentence)
    assert texts(tokens) == ["[CLS]", *words, "[SEP]"]
    assert [token.kind for token in tokens] == ["special", *["text"] * 8, "special"]


def test_word_pieces_keep_the_case_and_accents_and_spaces_as_typed(minilm):
    _, tokens = read_text(minilm, "Ünder  Internationalisation,\nBänke")
    assert texts(tokens[1:-1]) == ["Ünder", "  International", "isation", ",", "\nBänk", "e"]


def test_characters_that_word_pieces_drop_are_claimed_by_no_token(minilm):
    _, tokens = read_text(minilm, "rising\x04 rates")
    assert texts(tokens) == ["[CLS]", "rising", " rates", "[SEP]"]


def test_unknown_characters_are_shown_as_unknown(minilm):
    _, tokens = read_text(minilm, "a 🤗 b")
    assert [(token.text, token.kind) for token in tokens] == [
        ("[CLS]", "special"),
        ("a", "text"),
        ("[UNK]", "special"),
        (" b", "text"),
        ("[SEP]", "special"),
    ]


def test_special_tokens_in_the_text_are_named(smollm2, minilm):
    _, tokens = read_text(smollm2, "a<|im_end|> b")
    assert [(token.text, token.kind) for token in tokens] == [
        ("a", "text"),
        ("<|im_end|>", "special"),
        (" b", "text"),
    ]
    _, tokens = read_text(minilm, "a [SEP] b")
    assert texts(tokens) == ["[CLS]", "a", "[SEP]", " b", "[SEP]"]


def test_parts_of_a_character_are_shown_as_bytes(smollm2):
    _, tokens = read_text(smollm2, "x 🤗é")
    assert [(token.text, token.kind) for token in tokens] == [
        ("x", "text"),
        (" ⟨F0 9F⟩", "bytes"),
        ("⟨A4⟩", "bytes"),
        ("⟨97⟩", "bytes"),
        ("é", "text"),
    ]


def test_tokens_without_their_text_are_readable_too(smollm2, minilm):
    ids, tokens = read_text(smollm2, "It costs\n\n  12 €, naïve!")
    assert readable_tokens(smollm2.tokenizer, torch.tensor(ids)) == tokens
    ids, _ = read_text(minilm, "Internationalisation of banks")
    assert texts(readable_tokens(minilm.tokenizer, ids)) == [
        "[CLS]", "international", "isation", " of", " banks", "[SEP]",
    ]  # fmt: skip


def test_every_entry_of_the_vocabularies_can_be_read(smollm2, minilm):
    byte_of = {letter: byte for byte, letter in enumerate(folders.byte_letters())}
    vocabulary = smollm2.tokenizer.get_vocab()
    tokens = readable_tokens(smollm2.tokenizer, list(vocabulary.values()))
    for entry, token in zip(vocabulary, tokens, strict=True):
        if token.kind == "special":
            assert token.text == entry
        else:
            assert as_bytes(token) == bytes(byte_of[letter] for letter in entry)
    assert sum(token.kind == "special" for token in tokens) == 17
    for entry, number in minilm.tokenizer.get_vocab().items():
        (token,) = readable_tokens(minilm.tokenizer, [number])
        assert token.text == (entry.removeprefix("##") if token.kind == "text" else entry)


@pytest.mark.parametrize("number", [49152, -1, 10**12])
def test_an_id_outside_of_the_vocabulary_is_refused(smollm2, number):
    with pytest.raises(ArgumentError, match=rf"token id {number} is not in the vocabulary of 49152 tokens"):
        readable_tokens(smollm2.tokenizer, [number])


def test_the_models_input_has_what_the_model_expects(smollm2, minilm):
    ids = tokenize(smollm2, "The bank")
    assert ids.dtype == torch.int64
    assert smollm2.tokenizer.convert_ids_to_tokens(ids[0].tolist()) == ["The", "Ġbank"]
    long = "bank " * 300
    # The tokenizer's own file would cut this at 128 and fill shorter texts up to that.
    assert tokenize(minilm, long).shape == (1, 302)
    assert minilm.tokenizer.convert_ids_to_tokens(tokenize(minilm, "bank")[0].tolist()) == [
        "[CLS]",
        "bank",
        "[SEP]",
    ]


def test_a_text_fills_every_position_and_no_more(smollm2, minilm):
    assert tokenize(minilm, "bank " * 510).shape == (1, 512)
    with pytest.raises(ArgumentError, match=r"text has 513 tokens and minilm-l6 has positions for 512"):
        tokenize(minilm, "bank " * 511)
    with pytest.raises(ArgumentError, match=r"text has 9000 tokens and smollm2-135m has positions for 8192"):
        read_text(smollm2, " bank" * 9000)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"text is empty; give at least one word"),
        (" \n\t", r"text is only whitespace \(3 characters\)"),
        ("ab\udc80", r"lone surrogate U\+DC80 at character 2"),
        ("\ud800", r"lone surrogate U\+D800 at character 0"),
        ("ab\x04", r"U\+0004 at character 2, which this tokenizer drops .*lacks the byte 04\)"),
        ("x\U00050000", r"U\+50000 at character 1, which this tokenizer drops .*lacks the byte F1\)"),
        (["a"], r"text is a list; pass one text as str"),
        (None, r"text is a NoneType"),
    ],
)
def test_a_text_that_cannot_be_read_is_refused(smollm2, text, match):
    with pytest.raises(ArgumentError, match=match):
        tokenize(smollm2, text)


def test_a_text_that_leaves_no_token_is_refused(minilm):
    with pytest.raises(ArgumentError, match=r"has nothing that the tokenizer makes a token of; give words"):
        tokenize(minilm, "\x04\u200b")


def test_a_model_without_text_is_refused(minilm):
    images = dataclasses.replace(minilm, tokenizer=None)
    with pytest.raises(UnsupportedError, match=r"minilm-l6 reads no text: it takes input_ids"):
        tokenize(images, "a")


def test_a_tokenizer_of_another_model_is_noticed(smollm2, minilm):
    mixed = dataclasses.replace(minilm, tokenizer=smollm2.tokenizer)
    with pytest.raises(ModelError, match=r"makes token \d+ of this text, and the model knows 30522 tokens"):
        tokenize(mixed, "inflation was unforeseeable")


def test_positions_are_counted_from_after_the_padding(minilm):
    assert max_positions(minilm) == 512
    small = {"vocab_size": 31, "hidden_size": 24, "intermediate_size": 29}
    roberta = RobertaConfig(
        **small, num_hidden_layers=1, num_attention_heads=3, max_position_embeddings=23, pad_token_id=1
    )
    assert max_positions(dataclasses.replace(minilm, model=RobertaModel(roberta))) == 21
    bloom = BloomConfig(vocab_size=31, hidden_size=24, n_layer=1, n_head=3)
    assert max_positions(dataclasses.replace(minilm, model=BloomModel(bloom))) is None
