"""A deep image prior whose weights are dropped where the data do not need them."""

from typing import Any

from torch import Tensor

from ct_dip.methods.mfvi import Mfvi
from ct_dip.weight_posterior.mean_field import MeanField
from ct_dip.weight_posterior.potential import Potential
from ct_dip.weight_posterior.variational_dropout import log_uniform, prune


class SparseVd(Mfvi):
    """``min E_q[½ ‖(A f(w) − y)/σ_y‖² + λ TV(f(w))] + KL(q‖p)``, ``q = Π N(μ_j, σ_j²)``, ``p ∝ 1/|w|``.

    The divergence falls with ``α_j = σ_j²/μ_j²``: weights that are not needed become noise, and those with
    ``log α > 3`` are set to zero before images are drawn. ``sparsity`` is their fraction.
    """

    name = "sparse-vd"
    title = "a deep image prior with sparse variational dropout"
    summary = "A network fitted to this scan alone, in which weights that the data do not need are dropped."
    reference = "Molchanov, Ashukha and Vetrov 2017; Kingma et al. 2015"

    warm_up = 0.3

    def divergence(self, mean: Tensor, log_std: Tensor) -> Tensor:
        """Return KL(q‖p) of one convolution."""
        return log_uniform(mean, log_std)

    def finish(self, potential: Potential, q: MeanField) -> tuple[MeanField, dict[str, Any]]:
        """Prune, and return the sparsity of every convolution and of all."""
        pruned, sparsity = prune(potential, q)
        layers = {
            name: float((pruned.mean[where] == 0).float().mean()) for name, where in potential.slices.items()
        }
        return pruned, {"sparsity": sparsity, "sparsity_by_layer": layers}
