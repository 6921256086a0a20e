"""A bench as one JSON document."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from headwise.verbs.bench.result import Bench, Row, Timing


def to_json(bench: Bench) -> dict[str, Any]:
    """Return the document `headwise bench --json` prints; an error that is no number is null."""
    return {
        "machine": asdict(bench.machine),
        "threads": bench.threads,
        "peaks": {
            "fma_flops_per_second": bench.peaks.fma_flops,
            "read_bytes_per_second": bench.peaks.read_bytes,
        },
        "is_right": bench.is_right,
        "works": [_row(bench, row) for row in bench.rows],
    }


def _row(bench: Bench, row: Row) -> dict[str, Any]:
    return {
        **asdict(row.work),
        "clock": row.clock,
        "useful_flops": row.useful_flops,
        "kv_bytes": row.kv_bytes,
        "read_seconds": row.read_seconds,
        "fma_share": bench.fma_share(row),
        "read_share": bench.read_share(row),
        "best_peer": row.best_peer.backend if row.best_peer else None,
        "ratio": row.ratio,
        "timings": {timing.backend: _timing(row, timing) for timing in row.timings},
        "absences": {absence.backend: absence.reason for absence in row.absences},
    }


def _timing(row: Row, timing: Timing) -> dict[str, Any]:
    return {
        "seconds": timing.seconds,
        "repeats": timing.repeats,
        "useful_flops_per_second": row.useful_flops / timing.seconds,
        "kv_bytes_per_second": row.kv_bytes / timing.seconds,
        "largest_error": _finite(timing.largest_error),
        "relative_error": _finite(timing.relative_error),
        "is_right": timing.is_right,
        "form": timing.form,
    }


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
