"""The deep image prior with one deviation for all pixels, by marginal likelihood."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.method import Job, Method
from ct_dip.methods.dip import Dip, DipRun, FittedNetwork, fit_network, plan_fit, used_settings
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.whitened import Whitened
from ct_dip.run_plan import Plan
from ct_dip.solvers.lanczos import KRYLOV_BYTES, spectral_density, spectral_measure

LIKELIHOOD = "marginal likelihood"  # name of the stage
_STEPS, _PROBES = 60, 32  # of Lanczos
_DECADES, _POINTS = (-3, 6), 4500  # of deviations that are tried, in units of 1/‖B‖: half a percent apart


class DipMllConfig(Section):
    """How many samples go into the result."""

    samples: int = Field(default=100, ge=0)
    """Samples that are stored in the result."""


class DipMllRun(DipRun):
    """Settings of method ``dip-mll``."""

    dip_mll: DipMllConfig = DipMllConfig()


class IsotropicStd(NamedTuple):
    """A deviation s by its marginal likelihood: where that is largest, and the root mean of s² under it."""

    best: float
    mean: float


class DipMll(FittedNetwork, Method[DipMllRun]):
    """``x ~ N(f(w̃), s² I)``, s² the mean under ``p(y | s) = N(y − A f(w̃); 0, s² A Aᵀ + diag σ²)``.

    The network has seen the same sinogram: where it explains that to the noise, the likelihood is largest at
    s = 0, and what is left are deviations that it does not exclude.
    """

    name = "dip-mll"
    title = "a deep image prior with one error bar"
    summary = "A network fitted to this scan alone, and one error bar for all pixels that fits its residuals."
    reference = "Ulyanov et al. 2018; deviation by type-II likelihood as MacKay 1992, Bayesian interpolation"
    gives = ("image", "error bars", "samples")
    config = DipMllRun
    accepts: ClassVar[dict[str, str]] = Dip.accepts

    def plan(self, scan: Scan, config: DipMllRun, start: Plan) -> Plan:
        """Add the fit of the network, and Lanczos' vectors."""
        return plan_fit(scan, config, start).with_stage(LIKELIHOOD, 2 * KRYLOV_BYTES)

    def run(self, job: Job[DipMllRun]) -> Prediction:
        """Fit the network, and look at what it leaves of the sinogram."""
        transform = job.transform()
        fit, diagnostics = fit_network(job, transform)
        with job.progress.stage(LIKELIHOOD):
            dtype = torch.float32 if job.config.backend == "tomosipo" else torch.float64
            image = torch.as_tensor(fit.image).to(job.sinogram)
            inverse = torch.as_tensor(job.scan.variance_or_estimate()[0]).to(image.device, dtype).rsqrt()
            residual = ((job.sinogram - transform(image)).to(dtype) * inverse).flatten()
            std = isotropic_std(Whitened(transform, inverse), residual, seed=job.config.seed)
        draws = np.random.default_rng(job.config.seed).standard_normal(
            (job.config.dip_mll.samples, *fit.image.shape), dtype=np.float32
        )
        return Prediction(
            mean=fit.image,
            std=np.full(fit.image.shape, std.mean),
            samples=fit.image + np.float32(std.mean) * draws if len(draws) else None,
            diagnostics=diagnostics | {"isotropic_std": std.mean, "isotropic_std_best": std.best},
            traces=fit.traces,
            settings=used_settings(job.given, fit),
        )


def isotropic_std(whitened: LinearMap, residual: Tensor, *, seed: int = 0) -> IsotropicStd:
    """Return s of ``r = B u + ε``, ``u ~ N(0, s² I)``, ``ε ~ N(0, I)``, with a flat prior of s.

    ``−2 log p(r | s) = rᵀ (I + s² B Bᵀ)⁻¹ r + log|I + s² B Bᵀ|``, both by Lanczos quadrature, whose nodes and
    weights do not depend on s.

    Args:
        whitened: B, (rows, columns) → (measurements,).
        residual: r, (measurements,).
    """

    def signal(vectors: Tensor) -> Tensor:
        return whitened(whitened.T(vectors))

    size, dtype, device = len(residual), residual.dtype, residual.device
    steps = min(_STEPS, size)
    density = spectral_density(
        signal, size, steps=steps, probes=_PROBES, seed=seed, dtype=dtype, device=device
    )
    nodes, weights = (part[0] for part in spectral_measure(signal, residual[None], steps))
    largest = float(density.nodes.max())
    tried = torch.logspace(*_DECADES, _POINTS, dtype=torch.float64, device=device) / largest**0.5
    tried = torch.cat([tried.new_zeros(1), tried])
    energy = float(residual.double().square().sum())
    squares = tried.square()[:, None]
    fits = (weights / (1 + squares * nodes)).sum(dim=1)
    log_dets = torch.log1p(squares * density.nodes.flatten()) @ density.weights.flatten() / _PROBES
    values = energy * fits + size * log_dets
    likelihood = torch.exp(-0.5 * (values - values.min()))
    moment = torch.trapezoid(likelihood * tried.square(), tried) / torch.trapezoid(likelihood, tried)
    return IsotropicStd(float(tried[values.argmin()]), float(moment.sqrt()))
