"""How long Bayesian inference will take, from a short trial of every kind of work."""

import torch

from ct_dip.operators.linear_map import LinearMap
from ct_dip.posterior.config import InferenceConfig
from ct_dip.run_plan import Plan, time_of
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.taps import tap_pairs

_EVALUATIONS = {"scale": 15, "optimum": 80, "fit": 80}  # of the evidence per start, as seen
_NOISE_STEPS = 30  # of conjugate gradients with the noise of a compression's rest, as seen


def inference_seconds(
    plan: Plan, config: InferenceConfig, jacobian: Jacobian, transform: LinearMap
) -> dict[str, float]:
    """Time a chunk of passes, a symmetric product and a factorisation, and scale by their operations."""
    inference, weights = config.resolved(), plan.facts["weights"]
    count = jacobian.chunk
    images = torch.randn(count, *jacobian.range_shape)
    per_pixel = time_of(lambda: jacobian.T(images)) / count
    if plan.details.regime != "exact":
        seconds = {stage.name: stage.passes * per_pixel for stage in plan.stages if stage.passes}
        rank = next((s.passes // 2 for s in plan.stages if s.name == "compression"), 0)
        if rank:
            columns = torch.randn(16, *transform.domain_shape)
            per_column = time_of(lambda: transform.T(transform(columns))) / len(columns)
            tall = torch.randn(256, 8192, dtype=torch.float64)
            per_product = time_of(lambda: tall @ tall.T) / (256**2 * 8192)
            seconds["compression"] += rank * _NOISE_STEPS * per_column
            seconds["compression"] += rank**2 * weights * per_product
        return seconds
    side = min(plan.pixels, 512)
    features = torch.randn(side, 1024)
    per_flop = time_of(lambda: features @ features.T) / (side**2 * 1024)
    filters = weights / 9
    grams = len(tap_pairs(3).vectors) * 0.6 * plan.pixels**2 * filters * per_flop
    size = min(plan.measurements, 600)
    matrix = torch.eye(size, dtype=torch.float64) * 2
    factor = time_of(lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)))
    evidence = next(stage.bytes for stage in plan.stages if stage.name == "hyperparameters")
    evaluation = factor * (plan.measurements / size) ** 3 + evidence / 10e9  # 10 GB/s through memory
    evaluations = inference.starts * _EVALUATIONS[inference.objective]
    return {
        "prior covariances": 2 * plan.pixels * per_pixel + grams,
        "hyperparameters": evaluations * evaluation,
        "posterior": 4 * factor * (max(plan.measurements, plan.pixels) / size) ** 3,
    }
