"""ct_dip: Bayesian computed-tomography reconstruction.

Importing this package is cheap; torch, ASTRA and matplotlib are loaded when something needs them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ct_dip import memory as memory  # ct_dip.memory.keep_freed() works after import ct_dip

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ct_dip.compare_methods import compare, compare_results
    from ct_dip.config import RunConfig
    from ct_dip.data.method_table import MethodTable
    from ct_dip.data.prediction import Prediction
    from ct_dip.data.result_file import read_result, write_result
    from ct_dip.data.scan import Scan
    from ct_dip.data.scan_file import read_scan, write_scan
    from ct_dip.data.scores import Scores
    from ct_dip.data.simulate import NoiseLevel, simulate
    from ct_dip.dip.config import DipConfig
    from ct_dip.dip.ensemble import DipFit
    from ct_dip.dip.fit import fit_dip, fit_many
    from ct_dip.evaluation.score import score
    from ct_dip.geometry import FanBeam, ParallelBeam, Volume
    from ct_dip.method import Method
    from ct_dip.methods import load_config
    from ct_dip.operators import ray_transform
    from ct_dip.pipeline import reconstruct
    from ct_dip.posterior.config import InferenceConfig
    from ct_dip.posterior.fit import fit_posterior
    from ct_dip.posterior.posterior import Posterior
    from ct_dip.scanners import scanner, view_angles
    from ct_dip.select_settings import select

_HOME = {
    "DipConfig": "dip.config",
    "DipFit": "dip.ensemble",
    "FanBeam": "geometry",
    "InferenceConfig": "posterior.config",
    "Method": "method",
    "MethodTable": "data.method_table",
    "NoiseLevel": "data.simulate",
    "ParallelBeam": "geometry",
    "Posterior": "posterior.posterior",
    "Prediction": "data.prediction",
    "RunConfig": "config",
    "Scan": "data.scan",
    "Scores": "data.scores",
    "Volume": "geometry",
    "compare": "compare_methods",
    "compare_results": "compare_methods",
    "fit_dip": "dip.fit",
    "fit_many": "dip.fit",
    "fit_posterior": "posterior.fit",
    "load_config": "methods",
    "ray_transform": "operators",
    "read_result": "data.result_file",
    "read_scan": "data.scan_file",
    "reconstruct": "pipeline",
    "scanner": "scanners",
    "score": "evaluation.score",
    "select": "select_settings",
    "simulate": "data.simulate",
    "view_angles": "scanners",
    "write_result": "data.result_file",
    "write_scan": "data.scan_file",
}

__all__ = [
    "DipConfig",
    "DipFit",
    "FanBeam",
    "InferenceConfig",
    "Method",
    "MethodTable",
    "NoiseLevel",
    "ParallelBeam",
    "Posterior",
    "Prediction",
    "RunConfig",
    "Scan",
    "Scores",
    "Volume",
    "__version__",
    "compare",
    "compare_results",
    "fit_dip",
    "fit_many",
    "fit_posterior",
    "load_config",
    "ray_transform",
    "read_result",
    "read_scan",
    "reconstruct",
    "scanner",
    "score",
    "select",
    "simulate",
    "view_angles",
    "write_result",
    "write_scan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ct_dip' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ct_dip.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
