"""The vocabulary of the toy model: common words whole, everything else byte by byte, so it reads any text."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

FIRST_TOKEN = "<bos>"  # noqa: S105 - a token of text, no password

_WORDS = """
a about after all an and are as at away back bank be because become best better big bird blue book both boy
but by came can car cat city close cold come could country dark day did do dog door down each earth eat end
eye face family far father few find fire first fish food for found friend from game gave get give go gold
good great green had hard has have he head hear heart her here him his home hot house i if in inflation into
is it its king know land leave left life light like little live long look made make man many mat may me men
mother mouse my name never new night no not of off old on once one open or other out over play queen rain
raised rates red rising river run sat saw school sea see she ship so some sun that the their them then there
they this time to tree two up was water we were what when which white who will with woman word world would
year you
"""
_SPACE = "\u0120"
"""The letter of the byte alphabet that stands for the space."""


def toy_tokens() -> list[str]:
    """Return the vocabulary in the order of its ids: the first token, every byte, then the words.

    A word is there in small letters and capitalised, after a space and without one.
    """
    forms = [
        space + spelled
        for word in _WORDS.split()
        for spelled in (word, word.capitalize())
        for space in (_SPACE, "")
    ]
    # "a" and "I" without a space are bytes already.
    return list(dict.fromkeys([FIRST_TOKEN, *sorted(pre_tokenizers.ByteLevel.alphabet()), *forms]))


def toy_tokenizer() -> Tokenizer:
    """Return the tokenizer: it puts the first token before a text and knows every character."""
    vocabulary = {token: number for number, token in enumerate(toy_tokens())}
    # Without merges, a piece of text that is no entry as a whole is spelled in bytes.
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(FIRST_TOKEN, special=True, normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[FIRST_TOKEN, "$A"],
        pair=[FIRST_TOKEN, "$A", "$B:1"],
        special_tokens=[(FIRST_TOKEN, vocabulary[FIRST_TOKEN])],
    )
    return tokenizer
