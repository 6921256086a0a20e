"""The example as a whole: the sentence, its routing by one head and by two, and the scaling."""

from __future__ import annotations

import numpy as np

from headwise.verbs.explain.bank import routing, scaling
from headwise.verbs.explain.bank.result import BankExplanation
from headwise.verbs.explain.seeds import checked_seed

MIXES = (0.0, 0.4, 0.5, 0.6, 1.0)


def explain_bank(*, seed: int = 3) -> BankExplanation:
    """Return what one head and two bring to "bank" in "The bank raised rates", and what scaling does.

    "bank" asks for two tokens at once: what it did ("raised") and to what ("rates"). One head of width 8 is
    held against two heads of width 4, so that both have the same sizes. Random numbers are drawn from
    `numpy.random.default_rng(seed)`.

    Args:
        seed: of the generator, 0 to 4294967295.

    Raises:
        ArgumentError: the seed is none.

    Example:
        >>> found = explain_bank()
        >>> found.one.heads[0].weights.round(2), found.two.heads[0].weights.round(2)
        (array([0.01, 0.01, 0.49, 0.49]), array([0.02, 0.02, 0.95, 0.02]))

    Source: Vaswani et al. 2017, sections 3.2.1 with its footnote on scaling, and 3.2.2 on several heads.

    """
    random = np.random.default_rng(checked_seed(seed))
    sentence = random.standard_normal((len(routing.TOKENS), routing.CONTENT_WIDTH)).round(2)
    sentences = random.standard_normal((2 * routing.SENTENCES, *sentence.shape))
    return BankExplanation(
        tokens=routing.TOKENS,
        query_token=routing.ASKING,
        wanted=routing.WANTED,
        seed=seed,
        strength=routing.STRENGTH,
        sentences=routing.SENTENCES,
        contents=sentence,
        one=routing.route([(1.0, 1.0)], sentence, sentences),
        two=routing.route([(1.0, 0.0), (0.0, 1.0)], sentence, sentences),
        mixes=tuple(routing.mixed(second) for second in MIXES),
        draws=scaling.DRAWS,
        keys=scaling.KEYS,
        scaling=tuple(scaling.measure(head_dim, random) for head_dim in scaling.HEAD_DIMS),
    )
