"""The evidence as a function of all hyperparameters: prior, complement and noise.

The whitened sinogram is ``r = (y − A m₀)/σ``, with σ the noise that the scan states. Its covariance is
``K = B (J Σ Jᵀ + κ U) Bᵀ + s² I``, ``B = A/σ``, with U the complement, and s the noise relative to what is
stated. log κ and log s² are fitted together with the prior's log-parameters. ``log p(y)`` itself is the
log-density of r minus ``Σ log σ``.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ct_dip.evidence.marginal import CovarianceSum
from ct_dip.priors.complement import Complement
from ct_dip.priors.predcp import TvPredCp
from ct_dip.priors.weights import WeightPrior

Point = Literal["optimum", "fit"]


class TruncationCorrection(NamedTuple):
    """Correct the evidence for signals ``c E`` outside of the matrices, of a prior with one term.

    With eigenvalues x of ``c E`` in units of ``s² N``, a log-determinant has ``Σ log(1 + x)`` more, and a
    quadratic form less by ``Σ r² x/(1 + x)/s²``. Both are known at one c and s², x goes with ``ρ = c/s²``,
    and the first is that of equal ones: ``(t/x) log(1 + ρ x)``.

    Args:
        trace: t, the sum of x.
        typical: their mean, weighted with x itself.
        quadratic: by how much a quadratic form is less; negative if it is more.
        scale: c that they belong to, and ``noise`` s².
    """

    trace: float
    typical: float
    quadratic: float
    scale: float
    noise: float

    def log_evidence(self, scale: Tensor, noise: Tensor) -> Tensor:
        """Return what the evidence has more, at other c and s²; differentiable."""
        ratio = scale / noise * (self.noise / self.scale)
        log_det = self.trace / self.typical * torch.log1p(ratio * self.typical)
        damped = ratio * (1 + self.typical) / (1 + ratio * self.typical)
        return 0.5 * (self.quadratic * damped * self.noise / noise - log_det)


class NoiseOnlySubspace(NamedTuple):
    """Describe the measurements outside of the matrices, where there is nothing but noise ``s² N``.

    Args:
        dimensions: how many.
        misfit: what they have of ``rᵀ N⁻¹ r``.
        log_det: ``log|N|`` of all measurements.
        correction: signals that are there after all.
    """

    dimensions: int = 0
    misfit: float = 0.0
    log_det: float = 0.0
    correction: TruncationCorrection | None = None


EMPTY_SUBSPACE = NoiseOnlySubspace()

_NOISE_REACH = math.log(100.0)  # a stated or estimated variance is not wrong by more
COMPLEMENT_REACH = 12.0


@dataclass(frozen=True, kw_only=True, eq=False)
class EvidenceModel:
    """``log p(y | θ) + log p(θ)``, θ = (prior, [log κ], [log s²]).

    Args:
        matrices: ``B G_t Bᵀ`` of every term of the prior, then ``B U Bᵀ`` if there is a complement in the
            model, then I.
        residual: r at the prior mean, (measurements,).
        residual_at_fit: the same at h(w̃), which is f(w̃) for the tangent prior mean.
        log_noise: ``Σ log σ`` of the measurements.
        point: where the evidence is taken: ``optimum``, that of the tangent model, which is the marginal
            likelihood itself; or ``fit``, w̃ in its place, ``½(‖r̃‖²/s² + w̃ᵀΣ⁻¹w̃)`` for ``½ rᵀK⁻¹r``.
            Since the optimum is a minimum of that sum, the latter is never larger.
        hyperprior: ``weak``, log-normal; ``none``; or TV-PredCP of the tap lengths.
        learn_noise: or s = 1.
        noise_only: measurements that the matrices and the residual leave out, being pure noise.
    """

    matrices: CovarianceSum
    prior: WeightPrior
    complement: Complement | None
    residual: Tensor
    residual_at_fit: Tensor
    log_noise: float
    point: Point = "optimum"
    hyperprior: TvPredCp | Literal["weak", "none"] = "weak"
    learn_noise: bool = True
    noise_only: NoiseOnlySubspace = EMPTY_SUBSPACE

    @property
    def _has_complement(self) -> bool:
        return self.complement is not None and self.complement.in_model

    @property
    def _fits_complement(self) -> bool:
        return self._has_complement and self.complement is not None and self.complement.deviation is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Name the parameters in θ."""
        extra = ["log_complement"] * self._fits_complement + ["log_noise"] * self.learn_noise
        return (*self.prior.names, *extra)

    @property
    def start(self) -> Tensor:
        """Where the fitted weights and the stated noise put θ."""
        return self._extend(self.prior.start, 0.0, 0.0)

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """(lower, upper) of θ."""
        return (
            self._extend(self.prior.lower, -COMPLEMENT_REACH, -_NOISE_REACH),
            self._extend(self.prior.upper, COMPLEMENT_REACH, _NOISE_REACH),
        )

    def _extend(self, prior: Tensor, complement: float, noise: float) -> Tensor:
        extra = [complement] * self._fits_complement + [noise] * self.learn_noise
        return torch.cat([prior, torch.tensor(extra, dtype=torch.float64)])

    def split(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Split into (θ of the prior, log κ, log s²), the latter two 0 where they are not fitted."""
        count, zero = len(self.prior.start), theta.new_zeros(())
        complement = theta[count] if self._fits_complement else zero
        return theta[:count], complement, theta[-1] if self.learn_noise else zero

    def coefficients(self, theta: Tensor) -> Tensor:
        """Return the coefficient of every one of ``matrices``."""
        prior, _, noise = self.split(theta)
        parts = [self.prior.coefficients(prior)]
        if self._has_complement:
            parts.append(self.complement_factor(theta)[None])
        return torch.cat([*parts, noise.exp()[None]])

    def complement_factor(self, theta: Tensor) -> Tensor:
        """Return κ, the factor on the variances of the complement."""
        _, complement, noise = self.split(theta)
        follows = self.complement is not None and self.complement.in_units_of_noise
        return (complement + noise).exp() if follows else complement.exp()

    def log_evidence(self, theta: Tensor, point: Point | None = None) -> Tensor:
        """Compute ``log p(y | θ)`` at a point; differentiable."""
        prior, _, noise = self.split(theta)
        quadratic, logdet = self.matrices.terms(self.coefficients(theta), self.residual)
        logdet = logdet + self.noise_only.dimensions * noise + self.noise_only.log_det
        if (point or self.point) == "optimum":
            quadratic = quadratic + self.noise_only.misfit / noise.exp()
        else:
            misfit = self.residual_at_fit.square().sum() / noise.exp()
            quadratic = misfit + self.prior.weight_norm(prior)
        count = len(self.residual) + self.noise_only.dimensions
        log_evidence = -0.5 * (quadratic + logdet + count * math.log(2 * math.pi)) - self.log_noise
        if self.noise_only.correction is None:
            return log_evidence
        return log_evidence + self.noise_only.correction.log_evidence(
            self.prior.coefficients(prior)[0], noise.exp()
        )

    def log_hyperprior(self, theta: Tensor) -> Tensor:
        """Compute ``log p(θ)`` up to a constant."""
        prior, complement, _ = self.split(theta)
        total = theta.new_zeros(())
        if self.hyperprior == "none":
            return total
        if isinstance(self.hyperprior, TvPredCp):
            total = self.hyperprior.log_density(prior)
        else:
            total = self.prior.log_hyperprior(prior)
        if self.complement is not None and self.complement.deviation is not None:
            total = total - 0.5 * (complement / self.complement.deviation) ** 2
        return total

    def objective(self, theta: Tensor) -> Tensor:
        """Compute what the fit maximises."""
        return self.log_evidence(theta) + self.log_hyperprior(theta)

    def effective_dimension(self, theta: Tensor) -> float:
        """Compute ``tr(K⁻¹ B JΣJᵀ Bᵀ)``: how many directions of the sinogram the prior explains."""
        coefficients = self.coefficients(theta.detach()).requires_grad_()
        _, logdet = self.matrices.terms(coefficients, self.residual)
        (gradient,) = torch.autograd.grad(logdet, coefficients)
        terms = len(self.prior.coefficients(self.prior.start))
        return float((gradient * coefficients.detach())[:terms].sum())
