"""The tiny problem by its products, and the same model with every matrix written down."""

import dataclasses

import torch

from ct_dip.operators import ray_transform
from ct_dip.posterior.compressed import Compressed, basis_factor, feature_signals, projected_evidence
from ct_dip.posterior.compression import empty_compression, extend
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact import LinearModel
from ct_dip.posterior.exact_model import _measured
from ct_dip.posterior.measurement_noise import MeasurementNoise
from ct_dip.posterior.problem import linear_problem
from ct_dip.priors.weights import BlockPrior
from ct_dip.tangent.linearise import linearise
from ct_dip.tangent.statistics import feature_statistics
from tests import tiny

FEW, MANY = 4, 9  # views: 28 and 63 measurements of 30 pixels
COMPLEMENTS = ("none", "white", "slope", "floor")
PRIORS = (("block", "optimum"), ("block", "scale"), ("isotropic", "optimum"), ("g", "optimum"))


def configured(complement="slope", prior="block", objective="optimum", **others):
    return InferenceConfig(complement=complement, prior=prior, objective=objective, **others).resolved()


def problem_of(config, *, shape=tiny.PLAIN, photons=False, double=True, views=FEW, offset_error=0.0):
    fit, data = tiny.dip_fit(shape), tiny.scan(photons=photons, views=views)
    data = dataclasses.replace(data, offset_error=offset_error)
    network, z = fit.network(), fit.network_input
    if double:
        network, z = network.double(), z.double()
    return linear_problem(fit, data, linearise(network, z), config, ray_transform(data.geometry))


def measured_jacobian(problem):
    """B J, (measurements, P)."""
    return problem.whitened.dense() @ problem.jacobian.dense()


def columns_of(basis):
    """Q written down, (measurements, rank), float64."""
    return basis.whole().double().T


def exact_model(problem):
    """The problem for exact inference, with the same complement and the same scales of the g-prior."""
    dense = problem.jacobian.dense()
    if isinstance(problem.prior, BlockPrior):
        grams = feature_statistics(problem.jacobian).grams
    else:
        grams = (dense @ problem.prior.covariance(torch.zeros(1, dtype=torch.float64))(dense).T)[None]
    whitened = problem.whitened.dense()
    evidence = problem.evidence_model(
        _measured(grams, whitened, problem.complement), problem.residual, complement=problem.complement
    )
    return LinearModel(grams, whitened, problem.prior_mean, evidence)


def measured_covariance(model, prior, theta):
    """K of a prior covariance of the image."""
    noise = model.evidence.split(theta)[2].exp()
    b = model.whitened
    return b @ prior @ b.T + noise * torch.eye(len(b), dtype=torch.float64)


def compressed(problem, model, theta, *, rank=30):
    """(`Compressed`, its `EvidenceModel`, θ of that) at the θ of an exact model."""
    prior, _, log_noise = model.evidence.split(theta)
    noise = float(log_noise.exp())
    covariance = problem.prior.covariance(prior)
    basis = extend(problem, covariance, empty_compression(problem), trace=1e-20, max_rank=rank)
    pixels = None
    if problem.complement is not None and problem.complement.in_model:
        pixels = float(model.evidence.complement_factor(theta)) * problem.complement.variance
    seen_noise = MeasurementNoise(problem.whitened, None if pixels is None else pixels / noise)
    lower = basis_factor(basis.basis, seen_noise)
    posterior = Compressed(problem, basis, seen_noise, lower, covariance, pixels, noise)
    signals = feature_signals(problem, basis, None)
    evidence = projected_evidence(problem, basis, seen_noise, lower, signals)
    rest = [log_noise[None]] if evidence.learn_noise else []
    return posterior, evidence, torch.cat([prior, *rest])


def random_theta(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    start = model.evidence.start
    return start + 0.5 * torch.randn(len(start), generator=generator, dtype=torch.float64)
