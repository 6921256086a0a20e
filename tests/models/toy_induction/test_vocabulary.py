"""Any text can be read, common words whole and the rest byte by byte."""

import pytest

from headwise.models.tokens import read_text
from headwise.models.toy_induction.codes import MAX_CODES
from headwise.models.toy_induction.vocabulary import FIRST_TOKEN, toy_tokens


def test_there_is_a_code_for_every_token():
    tokens = toy_tokens()
    assert len(tokens) == len(set(tokens)) <= MAX_CODES
    assert tokens[0] == FIRST_TOKEN


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The cat sat. the cat", ["The", " cat", " sat", ".", " the", " cat"]),
        ("the cathedral", ["the", " ", "c", "a", "t", "h", "e", "d", "r", "a", "l"]),
        ("I saw a cat\n", ["I", " saw", " a", " cat", "\n"]),
        ("mat 12 é", ["mat", " ", "1", "2", " ", "⟨C3⟩", "⟨A9⟩"]),
    ],
)
def test_known_words_are_one_token_and_others_are_spelled(toy, text, tokens):
    _, found = read_text(toy, text)
    assert [token.text for token in found] == [FIRST_TOKEN, *tokens]
    assert found[0].kind == "special"


@pytest.mark.parametrize(
    "text", ["猫が座った 🐈‍⬛", "\x00\x7f tabs\tand\r\n lines", "naïve Ωmega  double  spaces"]
)
def test_nothing_of_a_text_is_lost(toy, text):
    ids, _ = read_text(toy, text)
    assert ids[0] == 0
    assert toy.tokenizer.decode(ids[1:], clean_up_tokenization_spaces=False) == text
