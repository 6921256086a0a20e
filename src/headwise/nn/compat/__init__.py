"""Stand-ins for the attention modules of other libraries: their call, their weights, our operator.

The rooms: `torch_multihead_attention` (the stand-in for `torch.nn.MultiheadAttention`), `inputs` (what it may
be given), `torch_masks` (what its masks mean in ours), `nested` (nested tensors), `weights` (the weights it
can return).
"""

from headwise.nn.compat.torch_multihead_attention import TorchMultiheadAttention

__all__ = ["TorchMultiheadAttention"]
