"""Laplace's approximation of the last layer alone."""

from typing import Any

from ct_dip.data.scan import Scan
from ct_dip.methods.laplace_diag import LaplaceDiag
from ct_dip.weight_posterior.curvature import full_block, last_layer
from ct_dip.weight_posterior.laplace import LaplaceBlock
from ct_dip.weight_posterior.linearised_scan import LinearisedScan


class LaplaceLastLayer(LaplaceDiag):
    """``x = f(w̃) + J_L δw``, ``δw ~ N(0, (J_Lᵀ Aᵀ Σ⁻¹ A J_L + δ I)⁻¹)``, J_L of the last convolution."""

    name = "laplace-last-layer"
    title = "a deep image prior with a Laplace approximation of its last layer"
    summary = "A network fitted to this scan alone, whose last layer is uncertain, and nothing else."
    reference = "Snoek et al. 2015; Kristiadi et al. 2020; Daxberger et al. 2021, Laplace Redux"

    def blocks(self, linearised: LinearisedScan, config: Any) -> list[LaplaceBlock]:
        """Return one block, the last convolution."""
        return [full_block(linearised, last_layer(linearised))]

    def passes(self, scan: Scan, config: Any) -> int:
        """Return how many draws are pushed through the linearised network."""
        return int(config.laplace.samples)
