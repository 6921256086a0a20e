"""The ways to attend that are examined, headwise first, and what each is asked: source, one line a call."""

from headwise.verbs.check_machine.backends.backend import Backend, Form
from headwise.verbs.check_machine.backends.flex import FlexAttention
from headwise.verbs.check_machine.backends.headwise_ops import HeadwiseCpu, HeadwiseTorch
from headwise.verbs.check_machine.backends.jax_nn import JaxNn
from headwise.verbs.check_machine.backends.multihead import MultiheadAttention
from headwise.verbs.check_machine.backends.onnx_runtime import OnnxRuntime
from headwise.verbs.check_machine.backends.torch_sdpa import TorchFlash, TorchMath

BACKENDS: tuple[Backend, ...] = (
    HeadwiseCpu(),
    HeadwiseTorch(),
    TorchFlash(),
    TorchMath(),
    FlexAttention(),
    MultiheadAttention(),
    OnnxRuntime(),
    JaxNn(),
)

__all__ = ["BACKENDS", "Backend", "Form"]
