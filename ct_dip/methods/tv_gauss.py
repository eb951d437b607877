"""Total variation with error bars."""

import dataclasses
import math
from typing import Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.image_space.field_evidence import UPDATES, DenseField, fit_by_samples
from ct_dip.image_space.markov_field import MarkovField
from ct_dip.image_space.problem import PixelProblem, pixel_problem
from ct_dip.method import Job, Method
from ct_dip.methods.tv import TvConfig, plan_tv, solve_tv, tv_seconds
from ct_dip.operators.ray import RayTransform
from ct_dip.priors.tv_majorant import majorant_weights
from ct_dip.run_plan import Plan, time_of

_MATRICES = 6  # of pixels² in float64 that closed forms hold at once
_DENSE_PIXELS = 64**2  # beyond which a factorisation takes longer than samples do
_TOGETHER = 16  # samples that are solved for together
_EVALUATIONS, _STEPS = 20, 60  # of the evidence, and of conjugate gradients per solve, as seen


class TvGaussConfig(Section):
    """Gaussian around the TV image.

    ``smoothing``: ε of the weights, in units of σ/‖A e_j‖, the noise of a pixel whose neighbours are known;
    ``noise``: as stated, or its size fitted together with the prior's scale.
    """

    smoothing: float = Field(default=0.3, gt=0, allow_inf_nan=False)
    """ε of the weights, in units of σ/‖A e_j‖, the noise of a pixel whose neighbours are known."""
    noise: Literal["fitted", "stated"] = "fitted"
    """Whether the size of the noise is found by evidence together with the prior's scale, or taken as
    stated."""
    samples: int = Field(default=200, ge=2)
    """Samples that are stored in the result."""


class TvGaussRun(RunConfig):
    """Settings of method ``tv-gauss``."""

    tv: TvConfig = TvConfig()
    tv_gauss: TvGaussConfig = TvGaussConfig()


class TvGauss(Method[TvGaussRun]):
    """``N(f, P⁻¹)``, ``P = l AᵀΣ⁻¹A + s DᵀWD``, ``W = λ/√(|D f|² + ε²)`` around the TV image f.

    The half-quadratic majorant of λ TV at f is that Gaussian prior with s = 1; a Laplace distribution is a
    mixture of such Gaussians. s and the noise precision l are those of the largest evidence, given W. The
    Gaussian's own mean is f only for s = l = 1; f is shown, as it was the better image by 0.7 to 3.7 dB on
    four scans of `benchmarks/object_list.py` to choose on. That evidence is not reported: W is made from the
    sinogram itself, and the prior of the mean of the image is improper.
    """

    name = "tv-gauss"
    title = "total variation with Gaussian error bars"
    summary = "Total variation, with error bars of a Gaussian that knows where its edges are."
    reference = "Geman and Yang 1995 (half-quadratic); MacKay 1992 (evidence)"
    gives = ("image", "error bars", "samples")
    config = TvGaussRun

    def plan(self, scan: Scan, config: TvGaussRun, start: Plan) -> Plan:
        """Choose closed forms where matrices of pixels² fit, and samples elsewhere."""
        kept = 8 * config.tv_gauss.samples * start.pixels
        closed = kept + 8 * _MATRICES * start.pixels**2
        dense = start.pixels <= _DENSE_PIXELS and start.held + closed <= start.budget
        facts = "matrices of pixels²" if dense else "samples by conjugate gradients"
        plan = plan_tv(config.tv, start.with_facts(inference=facts))
        plan = plan.with_stage("error bars", closed if dense else kept + 4 * 20 * _TOGETHER * start.pixels)
        return dataclasses.replace(plan, details=dense)

    def seconds(
        self, scan: Scan, config: TvGaussRun, plan: Plan, transform: RayTransform
    ) -> dict[str, float]:
        """Time products with A and Aᵀ, and a factorisation or the products of conjugate gradients."""
        seconds, samples = tv_seconds(config.tv, transform), config.tv_gauss.samples
        images = torch.zeros(_TOGETHER, *transform.domain_shape)
        products = time_of(lambda: transform.T(transform(images)))
        if plan.details:
            size = min(plan.pixels, 600)
            matrix = torch.eye(size, dtype=torch.float64) * 2
            factor = time_of(lambda: torch.cholesky_inverse(torch.linalg.cholesky(matrix)))
            evidence = _EVALUATIONS * factor * (plan.pixels / size) ** 3
            seconds["error bars"] = 2 * plan.pixels / _TOGETHER * products + evidence  # in float64
        else:
            solves = 2 * UPDATES + math.ceil(samples / _TOGETHER)
            seconds["error bars"] = solves * _STEPS * products
        return seconds

    def run(self, job: Job[TvGaussRun]) -> Prediction:
        """Reconstruct by total variation, fit s and l, and return deviations and samples."""
        settings, transform = job.config.tv_gauss, job.transform()
        variance, diagnostics = job.variance()
        solution, strength = solve_tv(job, transform, variance)
        problem = pixel_problem(transform, job.sinogram, variance, seed=job.config.seed)
        image = solution.image / problem.unit
        weights = majorant_weights(image, strength, settings.smoothing, isotropic=job.config.tv.isotropic)
        with job.progress.stage("error bars"):
            std, deviations, found = _posterior(job, problem, weights)
        typical = float(variance.mean().sqrt())
        diagnostics |= found | solution.diagnostics
        diagnostics |= {
            "sigma_y": typical * found["noise_scale"],
            "sigma_y_stated": typical,
        }
        return Prediction(
            mean=solution.image.cpu().numpy(),
            std=_image(problem.unit * std, problem),
            std_error=None
            if job.plan.details
            else _image(problem.unit * std / math.sqrt(2 * settings.samples), problem),
            samples=(solution.image.double() + problem.unit * deviations.reshape(-1, *problem.shape))
            .float()
            .cpu()
            .numpy(),
            diagnostics=diagnostics,
            settings={"tv": {"strength": strength}},
        )


def _posterior(
    job: Job[TvGaussRun], problem: PixelProblem, weights: Tensor
) -> tuple[Tensor, Tensor, dict[str, float]]:
    """Return deviations, (pixels,), samples of errors, (samples, pixels), and what was fitted."""
    settings, rng = job.config.tv_gauss, np.random.default_rng(job.config.seed)
    fit_noise = settings.noise == "fitted"
    if job.plan.details:
        dense = DenseField(problem, weights)
        scales = dense.fit(fit_noise=fit_noise)
        std, deviations = dense.std_and_errors(scales, settings.samples, rng)
    else:
        scales = fit_by_samples(problem, weights, fit_noise=fit_noise, seed=job.config.seed)
        field = MarkovField(problem, scales.prior * weights, scales.noise)
        counts = [min(_TOGETHER, settings.samples - n) for n in range(0, settings.samples, _TOGETHER)]
        deviations = torch.cat([field.solve(field.perturbations(n, rng)).x for n in counts])
        std = deviations.square().mean(dim=0).sqrt()
    return std, deviations, {"prior_scale": scales.prior, "noise_scale": scales.noise**-0.5}


def _image(values: Tensor, problem: PixelProblem) -> np.ndarray:
    return values.float().reshape(problem.shape).cpu().numpy()
