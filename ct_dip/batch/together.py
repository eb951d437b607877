"""Scans of one geometry, reconstructed as one batch where the method can."""

import contextlib
from collections.abc import Sequence
from typing import Any

from ct_dip.arrays import Floats
from ct_dip.config import RunConfig
from ct_dip.data.comparison import comparison_of_scan
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.pipeline import reconstruct
from ct_dip.progress import Progress
from ct_dip.run_together import batch_size, run_together

_Pair = tuple[Scan, Floats | None]  # with what it is compared with, if that is no truth


def reconstruct_together(
    scans: Sequence[Scan], references: Sequence[Floats | None], config: RunConfig, memory_budget: int
) -> list[Prediction | Exception]:
    """Reconstruct scans; what went wrong with one takes the place of its prediction.

    Scans that are alike are run as one batch (`ct_dip.method.Method.run_many`). The last bits of what comes
    out depend on which scans share the batch, and on nothing else. If a batch fails, its scans are run one by
    one, so that only those fail that would have failed alone.

    Args:
        references: to compare with, where there is one but no truth, 1/mm, (rows, columns).
    """
    alike: dict[tuple[Any, ...], list[int]] = {}
    for index, scan in enumerate(scans):
        kind = scan.geometry, scan.noise is None, scan.ground_truth is None
        alike.setdefault(kind, []).append(index)
    found: dict[int, Prediction | Exception] = {}
    for indices in alike.values():
        most = 1
        if len(indices) > 1:
            with contextlib.suppress(Exception):  # alone, each of them says what is wrong
                most = batch_size(scans[indices[0]], config, memory_budget)
        for first in range(0, len(indices), most):
            group = indices[first : first + most]
            pairs = [(scans[index], references[index]) for index in group]
            batch = _run_batch(pairs, config, memory_budget)
            found |= zip(group, batch, strict=True)
    return [found[index] for index in range(len(scans))]


def _run_batch(pairs: Sequence[_Pair], config: RunConfig, budget: int) -> Sequence[Prediction | Exception]:
    if len(pairs) > 1:
        with contextlib.suppress(Exception):
            compared, configs = [comparison_of_scan(*pair) for pair in pairs], [config] * len(pairs)
            return run_together([scan for scan, _ in pairs], configs, compared, budget, Progress())
    return [_prediction_or_error(*pair, config, budget) for pair in pairs]


def _prediction_or_error(
    scan: Scan, reference: Floats | None, config: RunConfig, budget: int
) -> Prediction | Exception:
    try:
        # Quietly: the evaluation shows one bar, not those of its items.
        made = reconstruct(scan, config, memory_budget=budget, reference=reference, progress=Progress())
        return made.plain()
    except Exception as error:  # whatever it is, the other scans still have something to show
        return error
