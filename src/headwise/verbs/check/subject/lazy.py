"""Lazy layers, which have no weights before the first call: they get them by one."""

from __future__ import annotations

import torch
from torch import nn

from headwise.verbs.check.asking import Form, Inputs, Sizes
from headwise.verbs.check.subject.caller import Caller
from headwise.verbs.check.subject.hints import Hints
from headwise.verbs.check.subject.meaning import INPUTS
from headwise.verbs.check.subject.trial import BATCH, SEQ_LEN
from headwise.verbs.check.subject.way import Asked, Way


def make_weights(caller: Caller, hints: Hints) -> None:
    """Call a module that has lazy layers once, so that they have weights.

    Its rows are d_model wide, where that is known, and else as wide as the first of these layers makes them.

    Raises:
        SubjectError: the call raised.

    """
    module = caller.target
    # Once it has weights, such a layer is one of another class.
    modules = module.modules() if isinstance(module, nn.Module) else ()
    layers = [each for each in modules if isinstance(each, nn.LazyLinear)]
    if not layers:
        return
    width = hints.d_model.value if hints.d_model is not None else layers[0].out_features
    # Nothing of the sizes but the width of the rows counts here, and what comes back does not.
    rows = torch.zeros(BATCH, SEQ_LEN, width)
    way = Way(Form.PROJECTED, Sizes(1, 1, width, width, width))
    caller.call(Asked(Inputs(rows, rows, rows), way, dict.fromkeys(caller.parameters.roles & INPUTS, rows)))
