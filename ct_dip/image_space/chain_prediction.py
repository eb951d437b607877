"""What samples of a Markov chain say of an object, and how far they can be believed."""

from typing import Any

import numpy as np
from torch import Tensor

from ct_dip.arrays import Floats
from ct_dip.data.prediction import Prediction
from ct_dip.image_space.effective_size import effective_size

FEWEST = 50  # effective samples: a deviation is then known to a tenth
_COUNTED = 64  # rows and columns of pixels whose effective size is computed, at most


def chain_prediction(
    draws: Tensor, unit: float, *, samples: int, quantities: dict[str, Floats] | None = None
) -> Prediction:
    """Make a prediction of the draws of several chains, with effective sample sizes.

    Args:
        draws: (chains, steps, rows, columns), after burn-in.
        unit: 1/mm per unit of the draws.
        samples: that the prediction keeps, spread over the chains.
        quantities: others that were sampled, (chains, steps) each, whose mean, deviation and effective size
            are reported, too.
    """
    chains, steps, rows, columns = draws.shape
    values = draws.cpu().numpy()
    coarse = values[..., :: -(-rows // _COUNTED), :: -(-columns // _COUNTED)]
    sizes = effective_size(coarse)
    low, typical = (float(np.quantile(sizes, share)) for share in (0.05, 0.5))
    diagnostics: dict[str, Any] = {
        "chains": chains,
        "draws": chains * steps,
        "effective_samples": typical,
        "effective_samples_low": low,
    }
    for name, chain in (quantities or {}).items():
        mean, std, size = float(chain.mean()), float(chain.std()), float(effective_size(chain))
        diagnostics |= {name: mean, f"{name}_std": std, f"{name}_effective_samples": size}
    warnings = []
    if low < FEWEST:
        warnings.append(
            f"a twentieth of the pixels have fewer than {low:.0f} effective samples, {FEWEST} are needed: "
            "error bars may be wrong by more than a tenth; draw more"
        )
    std = unit * values.std(axis=(0, 1), dtype=np.float64)
    kept = np.linspace(0, steps - 1, max(1, min(steps, -(-samples // chains)))).round().astype(int)
    return Prediction(
        mean=(unit * values.mean(axis=(0, 1), dtype=np.float64)).astype(np.float32),
        std=std.astype(np.float32),
        std_error=(std / np.sqrt(2 * typical)).astype(np.float32),
        samples=unit * values[:, kept].reshape(-1, rows, columns),
        diagnostics=diagnostics,
        warnings=tuple(warnings),
    )
