"""How many bytes of the page each part may take: the one place that decides how much detail is carried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PageBudget:
    """Bytes of the written page, packed as they stand in it.

    A part that does not fit is carried with less detail, as `page_detail` says, and the page says which.

    - page: everything
    - maps: the small maps of all heads; beyond it their cells are pooled two by two
    - tiles: every weight in 8 bits; beyond it of the layer in focus only, beyond that of none
    - exact: every weight as it was computed, instead of in 8 bits; or, where there is no room for that, the
      rows that were asked for, beyond it of the layer in focus only
    - statistics: the exact statistics of every row; beyond it of the layer in focus only
    - The largest keys of each row take what is left.
    """

    page: int
    maps: int
    tiles: int
    exact: int
    statistics: int

    def shared(self, runs: int, overhead: int) -> PageBudget:
        """Return what each of `runs` runs may take of a page whose other parts take `overhead` bytes."""
        return PageBudget(
            page=(self.page - overhead) // runs,
            maps=self.maps // runs,
            tiles=self.tiles // runs,
            exact=self.exact // runs,
            statistics=self.statistics // runs,
        )


LONG_TOKENS = 2048
"""Longer texts may take the larger page."""
SHORT_PAGE = PageBudget(
    page=10_000_000, maps=3_500_000, tiles=5_000_000, exact=1_000_000, statistics=2_500_000
)
LONG_PAGE = PageBudget(
    page=25_000_000, maps=3_500_000, tiles=5_000_000, exact=1_000_000, statistics=2_500_000
)


def budget_for(seq_len: int) -> PageBudget:
    """Return what a page on a text of `seq_len` tokens may take."""
    return LONG_PAGE if seq_len > LONG_TOKENS else SHORT_PAGE
