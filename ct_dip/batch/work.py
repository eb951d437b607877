"""What a worker does: read items of a dataset, reconstruct them, keep the results, and tell the figures."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ct_dip.batch.table import Row
from ct_dip.batch.together import reconstruct_together
from ct_dip.config import RunConfig
from ct_dip.data.datasets import Dataset
from ct_dip.data.method_table import Row as TableRow
from ct_dip.data.prediction import Prediction
from ct_dip.data.result_file import write_result
from ct_dip.errors import OutputError
from ct_dip.text import shortened

RESULTS = "items"  # folder of the result files
_ERROR = 1000  # characters of an error that are kept


@dataclass(frozen=True, kw_only=True)
class Work:
    """What all tasks of an evaluation share.

    Args:
        configs: of the methods, by name.
        folder: where result files go; ``None`` if figures alone are kept.
        memory_budget: bytes that one task may take.
    """

    dataset: Dataset
    configs: Mapping[str, RunConfig]
    folder: Path | None
    memory_budget: int

    def run(self, method: str, items: Sequence[int]) -> list[Row]:
        """Reconstruct some items together, and return a row for each, done or failed.

        Raises:
            OutputError: results cannot be written, which is nobody's fault but the folder's.
        """
        rows: dict[int, Row] = {}
        scans, references = [], []
        for item in items:
            try:
                scan = self.dataset[item]
                references.append(None if scan.ground_truth is not None else self.dataset.reference(item))
                scans.append(scan)
            except Exception as error:
                rows[item] = failed(item, method, self.dataset.label(item), error)
        good = [item for item in items if item not in rows]
        found = reconstruct_together(scans, references, self.configs[method], self.memory_budget)
        for item, prediction in zip(good, found, strict=True):
            rows[item] = self._row(item, method, prediction)
        return [rows[item] for item in items]

    def _row(self, item: int, method: str, prediction: Prediction | Exception) -> Row:
        label = self.dataset.label(item)
        if isinstance(prediction, Exception):
            return failed(item, method, label, prediction)
        path = None if self.folder is None else f"{RESULTS}/{label}/{method}.h5"
        if self.folder is not None and path is not None:
            write_result(prediction, self.folder / path)
        cells = TableRow(scan_digest=prediction.scan_digest, method=method, prediction=prediction).cells
        figures = {name: value for name, value in cells.items() if value is not None and math.isfinite(value)}
        return Row(
            item=item,
            method=method,
            label=label,
            state="done",
            seconds=figures.pop("seconds", None),
            peak_memory_mb=figures.pop("peak_memory_mb", None),
            scores=figures,
            scan_digest=prediction.scan_digest,
            result=path,
        )


def failed(item: int, method: str, label: str, error: Exception | str) -> Row:
    """Return the row of an item that failed.

    Raises:
        OutputError: if that is the error: then every item would fail.
    """
    if isinstance(error, OutputError):
        raise error
    text = str(error) or type(error).__name__
    return Row(item=item, method=method, label=label, state="failed", error=shortened(text, _ERROR))
