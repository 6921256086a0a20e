import weakref

import torch

from headwise.ops.joining import JoinedRows


def test_parts_are_joined_along_their_rows() -> None:
    whole = torch.randn(2, 3, 7, 5)
    joined = JoinedRows(7)
    for rows in (slice(0, 3), slice(3, 6), slice(6, 7)):
        joined.add(rows, whole[:, :, rows])
    assert torch.equal(joined.whole(), whole)


def test_without_autograd_no_part_is_kept() -> None:
    # Kept parts lie between freed blocks of weights and pin their memory.
    joined = JoinedRows(4)
    part = torch.randn(1, 2, 2)
    kept = weakref.ref(part)
    joined.add(slice(0, 2), part)
    del part
    assert kept() is None


def test_gradients_reach_every_part() -> None:
    parts = [torch.randn(1, 2, 3, requires_grad=True) for _ in range(2)]
    joined = JoinedRows(6)
    for start, part in zip((0, 3), parts, strict=True):
        joined.add(slice(start, start + 3), 2 * part)
    joined.whole().sum().backward()
    assert all(torch.equal(part.grad, torch.full((1, 2, 3), 2.0)) for part in parts)


def test_no_rows_join_to_no_rows() -> None:
    joined = JoinedRows(0)
    joined.add(slice(0, 0), torch.empty(1, 2, 0, 5))
    assert joined.whole().shape == (1, 2, 0, 5)
