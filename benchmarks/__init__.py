"""Ratios against named references, both sides measured in the same run.

``python -m benchmarks NAME [--json]`` prints one object per line: benchmark, case, reference,
reference_value, value, unit, ratio, and what else a benchmark has to say. A ratio above 1 means that ct_dip
is better.
"""
