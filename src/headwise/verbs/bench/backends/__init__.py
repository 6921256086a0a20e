"""The libraries that are timed, in the order in which they take their turns; headwise is the first."""

from headwise.verbs.bench.backends.backend import PAUSE_SECONDS, Backend, Prepared
from headwise.verbs.bench.backends.flex import FlexAttention
from headwise.verbs.bench.backends.headwise_ops import HeadwiseOps
from headwise.verbs.bench.backends.jax_xla import JaxXla
from headwise.verbs.bench.backends.onnx_runtime import OnnxRuntime
from headwise.verbs.bench.backends.torch_sdpa import TorchMath, TorchSdpa

BACKENDS: tuple[Backend, ...] = (
    HeadwiseOps(),
    TorchSdpa(),
    TorchMath(),
    FlexAttention(),
    OnnxRuntime(),
    JaxXla(),
)

__all__ = ["BACKENDS", "PAUSE_SECONDS", "Backend", "Prepared"]
