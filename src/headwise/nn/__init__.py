"""Attention as torch modules."""

from headwise.nn.multi_head_attention import MultiHeadAttention

__all__ = ["MultiHeadAttention"]
