"""Measurements of headwise. `python -m benchmarks` runs them; a module holds one, tests hold none."""
