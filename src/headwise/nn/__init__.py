"""Attention as torch modules, stand-ins for those of other libraries, and weights between layouts."""

from headwise.nn import compat, layouts
from headwise.nn.multi_head_attention import MultiHeadAttention

__all__ = ["MultiHeadAttention", "compat", "layouts"]
