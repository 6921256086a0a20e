"""Building the byte-level tokenizer that a GGUF file describes.

The file holds the vocabulary, the merges and the kind of each token, and names how text is cut before the
merges apply. Versions of transformers differ in what they make of this (5.3 takes another family's tokenizer,
5.24 cuts numbers as GPT-2 does), and a wrong cut gives wrong tokens without a word. So it is built here, or
refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from headwise.errors import ModelError, UnsupportedError
from headwise.models.opening.gguf_header import GgufHeader

# Token kinds of the format.
_CONTROL, _USER_DEFINED = 3, 4


@dataclass(frozen=True)
class Cutting:
    """How a family cuts text before its merges apply.

    Args:
        pattern: what one piece of text looks like; empty for GPT-2's own.
        each_digit_alone: every digit is cut off first.
        whole_pieces: a piece that is in the vocabulary is taken as it is, whatever the merges say.
        composed: characters are put into their composed form (NFC) first.
        begins: a token that marks the beginning is put first, unless the file says otherwise.

    """

    pattern: str = ""
    each_digit_alone: bool = False
    whole_pieces: bool = False
    composed: bool = False
    begins: bool = False


def _words(digits: str) -> str:
    """Return the pattern that Llama 3 and Qwen 2 share but for the number of digits in a piece."""
    return (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
        + digits
        + r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


# The names that `tokenizer.ggml.pre` gives them.
CUTTINGS = {
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais"), Cutting()),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        Cutting(each_digit_alone=True),
    ),
    **dict.fromkeys(
        ("llama3", "llama-v3", "llama-bpe"), Cutting(_words("{1,3}"), whole_pieces=True, begins=True)
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen"), Cutting(_words(""), composed=True)),
}


def byte_level_tokenizer(source: Path, header: GgufHeader) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a file whose `tokenizer.ggml.model` is `gpt2`.

    Raises:
        UnsupportedError: how the family cuts text is not known.
        ModelError: the vocabulary contradicts itself.

    """
    pre = header.values.get("tokenizer.ggml.pre")
    cutting = CUTTINGS.get(pre) if isinstance(pre, str) else None
    if cutting is None:
        raise UnsupportedError(
            f"{source} cuts text as tokenizer.ggml.pre={pre!r} says, which headwise does not know; its "
            f"tokens would come out wrong. Known are {', '.join(CUTTINGS)}; open others as safetensors"
        )
    tokens = header.lists.get("tokenizer.ggml.tokens", [])
    kinds = header.lists.get("tokenizer.ggml.token_type", [])
    merges = [tuple(merge.split(" ", 1)) for merge in header.lists.get("tokenizer.ggml.merges", [])]
    if not tokens or len(kinds) not in {0, len(tokens)}:
        raise ModelError(
            f"{source} has {len(tokens)} tokens and {len(kinds)} kinds of token; get a whole file"
        )
    vocabulary = {token: place for place, token in enumerate(tokens)}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=cutting.whole_pieces))
    if cutting.composed:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = _pre_tokenizer(cutting)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(_added(tokens, kinds, _CONTROL))
    backend.add_tokens(_added(tokens, kinds, _USER_DEFINED))
    named = _named_tokens(source, header, tokens)
    backend.post_processor = _around(header, cutting, named, vocabulary)
    context = header.values.get(f"{header.architecture}.context_length")
    length = {"model_max_length": context} if isinstance(context, int) else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=header.values.get("tokenizer.chat_template"),
        clean_up_tokenization_spaces=False,
        **length,
        **named,
    )


def _pre_tokenizer(cutting: Cutting) -> pre_tokenizers.PreTokenizer:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not cutting.pattern)
    if cutting.pattern:
        first = pre_tokenizers.Split(Regex(cutting.pattern), behavior="isolated")
        return pre_tokenizers.Sequence([first, byte_level])
    if cutting.each_digit_alone:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level])
    return byte_level


def _added(tokens: list[str], kinds: list[int], kind: int) -> list[AddedToken]:
    """Return the tokens of one kind that are matched in the text as they stand."""
    return [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, its_kind in zip(tokens, kinds, strict=False)
        if its_kind == kind
    ]


def _named_tokens(source: Path, header: GgufHeader, tokens: list[str]) -> dict[str, str]:
    named = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = header.values.get(f"tokenizer.ggml.{key}_token_id")
        if number is None:
            continue
        if not isinstance(number, int) or not 0 <= number < len(tokens):
            raise ModelError(f"{source}: tokenizer.ggml.{key}_token_id is {number!r} of {len(tokens)} tokens")
        named[f"{name}_token"] = tokens[number]
    return named


def _around(
    header: GgufHeader, cutting: Cutting, named: dict[str, str], vocabulary: dict[str, int]
) -> processors.PostProcessor:
    """Return what puts the marks of beginning and end around a text, where the file asks for them."""
    begins = header.values.get("tokenizer.ggml.add_bos_token", cutting.begins) and "bos_token" in named
    ends = header.values.get("tokenizer.ggml.add_eos_token", False) and "eos_token" in named
    first, last = [named["bos_token"]] if begins else [], [named["eos_token"]] if ends else []
    return processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *first, "$B:1", *last],
        special_tokens=[(token, vocabulary[token]) for token in dict.fromkeys(first + last)],
    )
