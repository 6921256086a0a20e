"""Text for a model, and its tokens as a person reads them."""

from headwise.models.tokens.reading import Token, max_positions, read_text, readable_tokens, tokenize

__all__ = ["Token", "max_positions", "read_text", "readable_tokens", "tokenize"]
