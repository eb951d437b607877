"""`select`: choose settings of a method for a scan, by evidence and by held-out views."""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ct_dip.compare_methods import compare
from ct_dip.config import RunConfig
from ct_dip.data.method_table import EVIDENCE, HELDOUT, MethodTable
from ct_dip.data.scan import Scan
from ct_dip.errors import InputError
from ct_dip.methods import load_config
from ct_dip.plain_yaml import read_yaml

_MOST = 200  # runs: a slip of the pen should not cost days


def select(
    scan: Scan | str | Path,
    over: Mapping[str, Sequence[Any]],
    *,
    method: str | None = None,
    config: str | Path | None = None,
    settings: Sequence[str] = (),
    **options: Any,
) -> MethodTable:
    """Reconstruct a scan with every combination of some settings.

    The table's rows have ``evidence``, the log of the marginal likelihood of the sinogram in nats, where the
    method has one, and ``heldout_log_density`` of line integrals that a fit on fewer views did not see;
    `choices` are the best of each. Where a truth is known, ``psnr`` and ``log_likelihood_1`` say how good
    these are.

    Args:
        method: its name; ``lin-dip`` if neither this nor ``config`` names one.
        over: values to try, by setting, as ``{"dip.strength": [0.1, 0.3, 0.8]}``.
        config: YAML file, and ``settings`` as ``["dip.max_steps=500"]``, which all runs share.
        options: of `ct_dip.compare`: ``out``, ``memory_budget``, ``seed``, ``preset``, ….

    Raises:
        InputError: there is nothing to choose from, or far too much.
    """
    shared = {name: options.pop(name) for name in RunConfig.model_fields.keys() & options.keys()}
    configs = configurations(over, method=method, config=config, settings=settings, **shared)
    return compare(scan, configs, heldout=True, **options)


def configurations(
    over: Mapping[str, Sequence[Any]],
    *,
    config: str | Path | None = None,
    settings: Sequence[str] = (),
    **options: Any,
) -> list[RunConfig]:
    """The configuration of every combination; ``options`` are keys of the top level."""
    return [load_config(config, settings=[*settings, *each], **options) for each in grid(over)]


def grid(over: Mapping[str, Sequence[Any]]) -> list[list[str]]:
    """Every combination of values, each as a list of ``section.key=value``."""
    texts = {name: [_text(name, value) for value in _listed(name, values)] for name, values in over.items()}
    if not texts or not all(texts.values()):
        raise InputError("there is nothing to select from; give values, for example dip.strength=0.1,0.3,0.8")
    for name, values in texts.items():
        if len(set(values)) < len(values):
            raise InputError(
                f"{name} has a value twice; drop one, or write [{','.join(values)}] if all are one list"
            )
    combinations = list(itertools.product(*texts.values()))
    if len(combinations) > _MOST:
        raise InputError(f"{len(combinations)} combinations are more than {_MOST}; give fewer values")
    return [[f"{name}={value}" for name, value in zip(texts, values, strict=True)] for values in combinations]


def _listed(name: str, values: Any) -> list[Any]:
    """Return the values to try, refusing one that is no sequence, or text, whose letters would be tried."""
    if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray):
        raise InputError(f"{name}: {values!r} is one value, expected several; write [{values!r}, …]")
    return list(values)


def _text(name: str, value: Any) -> str:
    try:
        return json.dumps(value.tolist() if isinstance(value, np.generic | np.ndarray) else value)
    except TypeError as error:
        raise InputError(
            f"{name}: {value} is a {type(value).__name__}, expected a number, a word or a list of them"
        ) from error


def read_over(text: str) -> tuple[str, list[Any]]:
    """The setting and the values of ``dip.strength=0.1,0.3`` or ``dip.channels=[16,16],[32,32,32]``."""
    name, equals, values = text.partition("=")
    try:
        read = read_yaml(f"[{values}]")
    except InputError as error:
        raise InputError(f"--over {text}: {error}") from error
    if not equals or "." not in name or not isinstance(read, list):
        raise InputError(
            f"--over {text}: write section.key=value,value, for example dip.strength=0.1,0.3,0.8"
        )
    return name.strip(), read


def choices(table: MethodTable) -> dict[str, str]:
    """What held-out views and evidence choose, by column, as far as the table has them."""
    best = {column: table.best(column) for column in (HELDOUT, EVIDENCE)}
    return {column: " or ".join(names) for column, names in best.items() if names}
