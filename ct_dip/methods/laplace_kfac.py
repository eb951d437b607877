"""Laplace's approximation with Kronecker-factored covariances of the weights."""

from typing import Any

from ct_dip.methods.laplace_diag import LaplaceDiag
from ct_dip.weight_posterior.kfac import kfac_blocks
from ct_dip.weight_posterior.laplace import LaplaceBlock
from ct_dip.weight_posterior.linearised_scan import LinearisedScan


class LaplaceKfac(LaplaceDiag):
    """``x = f(w̃) + J δw``, ``δw_l ~ N(0, (G_l ⊗ A_l + δ_l I)⁻¹)`` for every convolution l.

    A has the second moments of its inputs, G those of the cotangents of its outputs (KFAC-expand).
    """

    name = "laplace-kfac"
    title = "a deep image prior with a Kronecker-factored Laplace approximation"
    summary = "A network fitted to this scan alone, whose weights correlate within a convolution."
    reference = (
        "Grosse and Martens 2016; Ritter et al. 2018; KFAC-expand as in Eschenhagen et al. 2023; "
        "Daxberger et al. 2021, Laplace Redux"
    )

    def blocks(self, linearised: LinearisedScan, config: Any) -> list[LaplaceBlock]:
        """Return one block for every convolution."""
        return kfac_blocks(linearised, config.laplace.rows, config.seed)
