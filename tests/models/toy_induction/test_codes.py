"""The codes are what the weights rely on: of one length, and far apart."""

import numpy as np

from headwise.models.toy_induction.codes import CODE_LENGTH, MAX_CODES, MAX_OVERLAP, sign_codes


def test_every_entry_is_a_sign():
    codes = sign_codes()
    assert codes.shape == (MAX_CODES, CODE_LENGTH) == (1024, 32)
    assert set(np.unique(codes)) == {-1.0, 1.0}


def test_no_two_codes_come_nearer_than_promised():
    codes = sign_codes()
    products = codes @ codes.T
    assert (products.diagonal() == CODE_LENGTH).all()
    others = products[~np.eye(MAX_CODES, dtype=bool)]
    assert set(np.unique(others)) == {-MAX_OVERLAP, 0.0, MAX_OVERLAP}
