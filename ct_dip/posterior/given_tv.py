"""The total variation of the fit as pseudo-measurements of the tangent model.

The fit minimises ``½ ‖(y − A x)/σ‖² + λ TV(x)``, and the tangent model forgets the second half. Its Gaussian
majorant at f(w̃) says ``0 = W^½ ∇x + N(0, I)``, see `ct_dip.priors.tv_majorant`: 2 d_x measurements more, so
that the posterior's precision is ``(J Σ Jᵀ + D)⁻¹ + ∇ᵀW∇ + BᵀB/s²``. Multiplied by s they have the noise of
the sinogram, and every regime takes them as further rows of B.

The evidence of this model is ``p(y | 0, θ) = p(y, 0 | θ)/p(0 | θ)``, the sinogram's under a prior that knows
of TV. Its optimum gives the prior's parameters; those of noise and complement are the sinogram's alone.
"""

import dataclasses
from typing import NamedTuple

import torch
from torch import Tensor

from ct_dip.operators.differences import FiniteDifferences
from ct_dip.operators.whitened import StackedWhitened, Whitened
from ct_dip.posterior.problem import Problem, pixel_noise
from ct_dip.priors.tv_majorant import majorant_weights, without_pixels

_SMOOTHING = 0.3  # ε, in units of σ/‖A e_j‖, as in tv-gauss


class GivenTv(NamedTuple):
    """The problem of the sinogram with the pseudo-measurements below, and that of the latter alone."""

    joint: Problem
    alone: Problem


def given_tv(problem: Problem, noise: float, freed: Tensor | None = None) -> GivenTv:
    """Give a problem the total variation that its fit minimised.

    Args:
        noise: s².
        freed: variances of freed pixels, (pixels,), about which TV then says nothing.
    """
    smoothing = _SMOOTHING * pixel_noise(problem.whitened)
    weights = majorant_weights(problem.jacobian.image.double(), problem.fit.tv_weight, smoothing)
    if freed is not None:
        weights = without_pixels(weights, freed > 0)
    differences = Whitened(FiniteDifferences(problem.jacobian.range_shape), (noise * weights).sqrt())
    residual = -differences.project(problem.prior_mean[None])[0]
    return GivenTv(
        joint=dataclasses.replace(
            problem,
            whitened=StackedWhitened(problem.whitened, differences),
            residual=torch.cat([problem.residual, residual]),
        ),
        alone=dataclasses.replace(
            problem,
            whitened=differences,
            residual=residual,
            log_noise=0.0,
            config=problem.config.model_copy(update={"hyperprior": "none"}),  # which p(y | 0) has once
        ),
    )
