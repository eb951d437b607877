"""Hyperparameters by L-BFGS, from several starts, with a report."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.errors import CtDipError
from ct_dip.evidence.conditional import ConditionalEvidence
from ct_dip.evidence.model import EvidenceModel
from ct_dip.progress import Progress

_START_DEVIATION = 1.5  # of further starts, in log-parameters
_TOLERANCE = 1e-8  # of the objective, relative
_MAX_ITERATIONS = 300


@dataclass(frozen=True, kw_only=True, eq=False)
class EvidenceFit:
    """Where the search ended.

    Args:
        theta: best log-parameters; ``names`` what they are.
        objective: evidence and hyperprior there; ``evidence`` without the hyperprior, and in the compressed
            regime with what the basis leaves out, which the search does not see.
        converged: whether the best search met its tolerance.
        at_bound: names of parameters that ended at the end of their range.
        found: the objective that every start reached: a spread tells of several optima, −inf of a start
            that met a value that could not be computed.
        evaluations: of the objective, in all.
        trace: best objective after every evaluation.
        jitter: largest that any factorisation needed; 0 as a rule.
    """

    theta: Tensor
    names: tuple[str, ...]
    objective: float
    evidence: float
    converged: bool
    at_bound: tuple[str, ...]
    found: tuple[float, ...]
    evaluations: int
    trace: Floats
    jitter: float


def fit_evidence(
    model: EvidenceModel | ConditionalEvidence,
    *,
    starts: int = 3,
    first: Tensor | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> EvidenceFit:
    """Maximise ``log p(y | θ) + log p(θ)`` over θ.

    Args:
        starts: how many; all but the first are spread around it.
        first: θ, where the fitted weights put it if ``None``.
    """
    lower, upper = (bound.numpy() for bound in model.bounds)
    generator = np.random.default_rng(seed)
    trace: list[float] = []
    results: list[Any] = []
    reached: list[float] = []
    failure = CtDipError("no search for hyperparameters was made")
    with (progress or Progress()).stage("hyperparameters") as stage:

        def negative(values: Floats) -> tuple[float, Floats]:
            theta = torch.tensor(values, dtype=torch.float64, requires_grad=True)
            objective = model.objective(theta)
            (gradient,) = torch.autograd.grad(objective, theta)
            value = float(objective.detach())
            if not np.isfinite(value) or not bool(torch.isfinite(gradient).all()):
                raise CtDipError(f"the evidence is {value} at {dict(zip(model.names, values, strict=True))}")
            trace.append(max(value, trace[-1]) if trace else value)
            stage.update(len(trace), evidence=trace[-1])
            return -value, -gradient.numpy()

        for number in range(starts):
            start = (model.start if first is None else first).numpy()
            if number:
                start = start + _START_DEVIATION * generator.standard_normal(len(start))
            try:
                result = minimize(
                    negative,
                    np.clip(start, lower, upper),
                    jac=True,
                    method="L-BFGS-B",
                    bounds=list(zip(lower, upper, strict=True)),
                    options={"maxiter": _MAX_ITERATIONS, "ftol": _TOLERANCE},
                )
            except CtDipError as error:
                failure = error
                reached.append(-np.inf)
            else:
                results.append(result)
                reached.append(-float(result.fun))
    if not results:
        raise failure
    best = min(results, key=lambda result: result.fun)
    theta = torch.tensor(best.x, dtype=torch.float64)
    edge = ((best.x <= lower + 1e-6) | (best.x >= upper - 1e-6)) & (lower < upper)
    return EvidenceFit(
        theta=theta,
        names=model.names,
        objective=-float(best.fun),
        evidence=float(model.log_evidence(theta)),
        converged=bool(best.success),
        at_bound=tuple(name for name, ends in zip(model.names, edge, strict=True) if ends),
        found=tuple(reached),
        evaluations=len(trace),
        trace=np.array(trace),
        jitter=model.matrices.jitter,
    )
