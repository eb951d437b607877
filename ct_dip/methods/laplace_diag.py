"""Laplace's approximation with a diagonal covariance of the weights."""

import dataclasses
from typing import Any, ClassVar

from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.method import Job, Method
from ct_dip.methods.dip import (
    Dip,
    DipRun,
    FittedNetwork,
    fit_network,
    plan_fit,
    template,
    used_settings,
)
from ct_dip.run_plan import Plan
from ct_dip.tangent.footprint import footprint
from ct_dip.weight_posterior.curvature import diagonal_blocks
from ct_dip.weight_posterior.drawn import drawn_prediction
from ct_dip.weight_posterior.laplace import LaplaceBlock, draw_images, log_marginal_likelihood
from ct_dip.weight_posterior.linearised_scan import LinearisedScan, linearise_scan

LAPLACE = "laplace"  # name of the stage


class LaplaceConfig(Section):
    """Laplace's approximation.

    ``rows``: most measurements of an exact curvature; of more, this many random combinations are used.
    """

    samples: int = Field(default=200, ge=2)
    """Samples that are stored in the result."""
    rows: int = Field(default=4096, ge=1)
    """Most measurements of an exact curvature; of more, this many random combinations are used."""


class LaplaceRun(DipRun):
    """Settings of the methods ``laplace-…``."""

    laplace: LaplaceConfig = LaplaceConfig()


class LaplaceDiag(FittedNetwork, Method[LaplaceRun]):
    """``x = f(w̃) + J δw``, ``δw_j ~ N(0, 1/(h_j + δ))`` with ``h = diag(Jᵀ Aᵀ Σ⁻¹ A J)``.

    The prior's precision δ of every convolution maximises the marginal likelihood of this approximation.
    """

    name = "laplace-diag"
    title = "a deep image prior with a diagonal Laplace approximation"
    summary = "A network fitted to this scan alone, whose weights have independent errors."
    reference = "MacKay 1992; Daxberger et al. 2021, Laplace Redux"
    gives = ("image", "error bars", "samples")
    config = LaplaceRun
    accepts: ClassVar[dict[str, str]] = Dip.accepts

    def blocks(self, linearised: LinearisedScan, config: Any) -> list[LaplaceBlock]:
        """Return the weights with their curvature; the other methods of the family have others."""
        return diagonal_blocks(linearised, config.laplace.rows, config.seed)

    def passes(self, scan: Scan, config: Any) -> int:
        """Return how many passes through the linearised network are made."""
        return min(config.laplace.rows, scan.sinogram.size) + int(config.laplace.samples)

    def plan(self, scan: Scan, config: LaplaceRun, start: Plan) -> Plan:
        """Add the fit of the network, and passes through the linearised one."""
        network = footprint(template(scan, config, start.given), scan.geometry.domain_shape)
        held = 8 * (4 * sum(network.block_weights) + 3 * config.laplace.samples * start.pixels)
        plan = plan_fit(scan, config, start)
        return plan.with_stage(LAPLACE, network.jacobian_bytes + held, passes=self.passes(scan, config))

    def run(self, job: Job[LaplaceRun]) -> Prediction:
        """Fit the network, linearise it, and draw from its weights."""
        transform, config = job.transform(), job.config
        fit, diagnostics = fit_network(job, transform)
        variance, _ = job.variance()
        with job.progress.stage(LAPLACE):
            linearised = linearise_scan(fit, job.sinogram, variance, transform)
            blocks = self.blocks(linearised, config)
            prediction = drawn_prediction(
                draw_images(linearised, blocks, config.laplace.samples, config.seed),
                linearised.whitened,
                fit.scale,
                mean=linearised.jacobian.image,
                seed=config.seed,
            )
        count = sum(len(block.index) for block in blocks)
        # Of some weights it is given the others, which were fitted to the same sinogram.
        kind = "evidence" if count == len(linearised.jacobian.weights) else "log_marginal_likelihood"
        diagnostics |= {
            kind: log_marginal_likelihood(linearised, blocks),
            "weights_in_posterior": count,
            "effective_weights": sum(float((b.eigenvalues * b.variances()).sum()) for b in blocks),
        }
        return dataclasses.replace(
            prediction,
            diagnostics=diagnostics | prediction.diagnostics,
            traces=fit.traces,
            settings=used_settings(job.given, fit),
        )
