"""The class a config is opened with: a language model head where the model writes text, none elsewhere."""

import pytest
from transformers import (
    BartConfig,
    BertConfig,
    GPT2Config,
    LlamaConfig,
    LlavaConfig,
    PreTrainedConfig,
    RobertaConfig,
    T5Config,
    ViTConfig,
    WhisperConfig,
)

from headwise.errors import UnsupportedError
from headwise.models.opening.model_class import choose_model_class


@pytest.mark.parametrize(
    ("config", "architecture", "expected"),
    [
        # Decoders.
        (LlamaConfig(), "LlamaForCausalLM", "LlamaForCausalLM"),
        (LlamaConfig(), None, "LlamaForCausalLM"),
        (LlamaConfig(), "LLaMAForCausalLM", "LlamaForCausalLM"),
        (LlamaConfig(tie_word_embeddings=False), "LlamaModel", "LlamaModel"),
        (LlamaConfig(tie_word_embeddings=True), "LlamaModel", "LlamaForCausalLM"),
        (LlamaConfig(tie_word_embeddings=True), "LlamaForSequenceClassification", "LlamaModel"),
        (GPT2Config(), "GPT2LMHeadModel", "GPT2LMHeadModel"),
        (GPT2Config(), "GPT2Model", "GPT2LMHeadModel"),
        # Encoders, and encoders that were made decoders.
        (BertConfig(), "BertModel", "BertModel"),
        (BertConfig(), None, "BertModel"),
        (BertConfig(), "BertForMaskedLM", "BertModel"),
        (BertConfig(), "BertLMHeadModel", "BertModel"),
        (BertConfig(is_decoder=True), "BertLMHeadModel", "BertLMHeadModel"),
        (BertConfig(is_decoder=True), None, "BertLMHeadModel"),
        (RobertaConfig(), "RobertaForMaskedLM", "RobertaModel"),
        (RobertaConfig(), "RobertaForSequenceClassification", "RobertaModel"),
        # Encoder-decoders, and one half of them.
        (T5Config(), "T5ForConditionalGeneration", "T5ForConditionalGeneration"),
        (T5Config(), None, "T5ForConditionalGeneration"),
        (T5Config(), "T5Model", "T5ForConditionalGeneration"),
        (T5Config(), "T5EncoderModel", "T5EncoderModel"),
        (BartConfig(), "BartForConditionalGeneration", "BartForConditionalGeneration"),
        (BartConfig(), None, "BartForConditionalGeneration"),
        # Images and sound.
        (ViTConfig(), "ViTForImageClassification", "ViTModel"),
        (LlavaConfig(), "LlavaForConditionalGeneration", "LlavaForConditionalGeneration"),
        (WhisperConfig(), "WhisperForConditionalGeneration", "WhisperForConditionalGeneration"),
        # A class of another family, and one that is none.
        (LlamaConfig(), "GPT2LMHeadModel", "LlamaForCausalLM"),
        (BertConfig(), "AutoModel", "BertModel"),
    ],
)
def test_the_class_follows_the_config(config, architecture, expected):
    config.architectures = [architecture] if architecture else None
    assert choose_model_class(config).__name__ == expected


def test_a_config_without_a_model_is_refused():
    with pytest.raises(UnsupportedError, match=r"transformers .* has no model for model_type=''"):
        choose_model_class(PreTrainedConfig())
