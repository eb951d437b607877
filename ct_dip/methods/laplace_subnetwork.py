"""Laplace's approximation of the weights that a diagonal one is least sure of."""

from typing import Any

from pydantic import Field

from ct_dip.config import Section
from ct_dip.data.scan import Scan
from ct_dip.methods.laplace_diag import LaplaceDiag, LaplaceRun
from ct_dip.weight_posterior.curvature import diagonal_blocks, full_block, most_variable
from ct_dip.weight_posterior.laplace import LaplaceBlock
from ct_dip.weight_posterior.linearised_scan import LinearisedScan


class SubnetworkConfig(Section):
    """How many weights are uncertain; all others stay where they are."""

    weights: int = Field(default=500, ge=1)
    """Weights that are uncertain; the others stay at their fitted values."""


class LaplaceSubnetworkRun(LaplaceRun):
    """Settings of method ``laplace-subnetwork``."""

    subnetwork: SubnetworkConfig = SubnetworkConfig()


class LaplaceSubnetwork(LaplaceDiag):
    """``x = f(w̃) + J_S δw``, ``δw ~ N(0, (J_Sᵀ Aᵀ Σ⁻¹ A J_S + δ Λ_S)⁻¹)``, S of the largest variances.

    They are those of the diagonal approximation, which gives the prior's precision Λ of every convolution as
    well; the factor δ maximises the marginal likelihood of this approximation.
    """

    name = "laplace-subnetwork"
    title = "a deep image prior with a Laplace approximation of some weights"
    summary = "A network fitted to this scan alone, with uncertainty in its least certain weights only."
    reference = "Daxberger et al. 2021, Bayesian Deep Learning via Subnetwork Inference"
    config = LaplaceSubnetworkRun

    def blocks(self, linearised: LinearisedScan, config: Any) -> list[LaplaceBlock]:
        """Return one block, the subnetwork."""
        diagonal = diagonal_blocks(linearised, config.laplace.rows, config.seed)
        return [full_block(linearised, *most_variable(diagonal, config.subnetwork.weights))]

    def passes(self, scan: Scan, config: Any) -> int:
        """Return those of the diagonal approximation, and one for every weight of the subnetwork."""
        return super().passes(scan, config) + int(config.subnetwork.weights)
