"""Replace the attention of a `torch.nn.TransformerEncoder` by headwise's: same weights, same outputs.

    python examples/replace_in_transformer_encoder.py

In evaluation without gradients torch's encoder does not call its attention modules: a fast path computes from
their weights, on nested tensors where texts are padded, and returns 0 for padding. `TorchMultiheadAttention`
is called there too and takes the nested tensors, so that what is compared below is the same on every path.
"""

import copy
import warnings

import torch
from torch import Tensor, nn

import headwise as hw

D_MODEL, NUM_HEADS, LAYERS = 64, 4, 3
PATHS = {
    "training": {"training": True, "gradients": True},
    "evaluation": {"training": False, "gradients": True},
    "evaluation without gradients": {"training": False, "gradients": False},
}


def replace_attention(model: nn.Module) -> int:
    """Replace each attention module of torch in `model`, and return how many there were."""
    replaced = 0
    for owner in list(model.modules()):
        for name, child in list(owner.named_children()):
            if type(child) is nn.MultiheadAttention:
                setattr(owner, name, headwise_for(child))
                replaced += 1
    return replaced


def headwise_for(theirs: nn.MultiheadAttention) -> hw.compat.TorchMultiheadAttention:
    """Return headwise's module with the options and the weights of `theirs`."""
    ours = hw.compat.TorchMultiheadAttention(
        theirs.embed_dim,
        theirs.num_heads,
        dropout=theirs.dropout,
        bias=theirs.in_proj_bias is not None,
        add_bias_kv=theirs.bias_k is not None,
        add_zero_attn=theirs.add_zero_attn,
        kdim=theirs.kdim,
        vdim=theirs.vdim,
        batch_first=theirs.batch_first,
        device=theirs.out_proj.weight.device,
        dtype=theirs.out_proj.weight.dtype,
    )
    ours.load_state_dict(theirs.state_dict())
    return ours.train(theirs.training)


def made_encoder() -> nn.TransformerEncoder:
    """Return torch's encoder, without dropout so that two of them can be compared in training."""
    layer = nn.TransformerEncoderLayer(D_MODEL, NUM_HEADS, 4 * D_MODEL, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, LAYERS)


def outputs_of(
    encoder: nn.Module, texts: Tensor, padding: Tensor, *, training: bool, gradients: bool
) -> Tensor:
    """Return the outputs of the tokens that are no padding, `[tokens, D_MODEL]`, by the path asked for."""
    with torch.set_grad_enabled(gradients):
        outputs: Tensor = encoder.train(training)(texts, src_key_padding_mask=padding)
    return outputs[~padding]


def main() -> None:
    """Replace, compare on each of torch's paths, and print how far apart the outputs are."""
    torch.manual_seed(0)
    theirs = made_encoder()
    ours = copy.deepcopy(theirs)
    print(f"replaced {replace_attention(ours)} attention modules")
    texts, padding = torch.randn(2, 11, D_MODEL), torch.arange(11) >= torch.tensor([[11], [7]])
    warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype stage")
    for name, path in PATHS.items():
        found, expected = (outputs_of(encoder, texts, padding, **path) for encoder in (ours, theirs))
        print(f"{name}: outputs differ by {(found - expected).abs().max():.1e} at most")


if __name__ == "__main__":
    main()
