"""Which class of transformers a config is opened with."""

from __future__ import annotations

from typing import Any

import transformers
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from headwise.errors import UnsupportedError


def choose_model_class(config: PreTrainedConfig) -> type[PreTrainedModel]:
    """Return the class to open a model with: with its language model head if it generates text, else bare.

    The class named in the config's `architectures` is taken if it generates (decoders, encoder-decoders, and
    models that read images or sound and write text) or is the encoder half of an encoder-decoder. Heads of
    other kinds (masked words, classes) are left off: they come after the last attention.

    Raises:
        UnsupportedError: transformers has no model for this config.

    """
    named = _named_class(config)
    if named is not None and (_generates(named, config) or named.__name__.endswith("EncoderModel")):
        return named
    bare = _first(modeling_auto.MODEL_MAPPING, config)
    other_head = named is not None and named is not bare
    for mapping in (
        modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
        modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING,
    ):
        with_head = _first(mapping, config)
        # The weights of a bare decoder have no head; it is known only where it is the embedding again.
        if with_head is None or other_head or not _generates(with_head, config):
            continue
        if named is None or getattr(config, "tie_word_embeddings", False):
            return with_head
    if bare is None:
        raise UnsupportedError(
            f"transformers {transformers.__version__} has no model for model_type={config.model_type!r}"
        )
    return bare


def _named_class(config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    name = next(iter(config.architectures or ()), None)
    found = getattr(transformers, name, None) if isinstance(name, str) else None
    fits = (
        isinstance(found, type) and issubclass(found, PreTrainedModel) and found.config_class is type(config)
    )
    return found if fits else None


def _generates(model_class: type[PreTrainedModel], config: PreTrainedConfig) -> bool:
    """Say whether a class generates text from this config; a family of encoders does so only as a decoder."""
    masked = type(config) in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING
    decodes = getattr(config, "is_encoder_decoder", False) or getattr(config, "is_decoder", False)
    return model_class.can_generate() and (decodes or not masked)


def _first(mapping: Any, config: PreTrainedConfig) -> type[PreTrainedModel] | None:
    found = mapping.get(type(config), None)
    return found[0] if isinstance(found, tuple) else found
