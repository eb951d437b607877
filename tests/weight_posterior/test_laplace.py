"""Every Laplace approximation against the dense Gauss-Newton matrix of a problem that can be written down."""

import pytest
import torch
from torch import nn

import tests.tiny as tiny
from ct_dip.operators import ray_transform
from ct_dip.weight_posterior.curvature import (
    diagonal_blocks,
    full_block,
    ggn_diagonal,
    last_layer,
    most_variable,
)
from ct_dip.weight_posterior.drawn import drawn_prediction
from ct_dip.weight_posterior.kfac import kfac_blocks
from ct_dip.weight_posterior.laplace import draw_images, log_marginal_likelihood, prior_precision
from ct_dip.weight_posterior.linearised_scan import linearise_scan

ALL = 10**6  # rows: exact


def linearised(fit, *, photons=True):
    data = tiny.scan(photons=photons)
    variance = torch.as_tensor(data.variance_or_estimate()[0])
    sinogram = torch.as_tensor(data.sinogram.copy())
    return linearise_scan(fit, sinogram, variance, ray_transform(data.geometry), double=True)


@pytest.fixture(scope="module", params=[tiny.PLAIN, tiny.NORMALISED], ids=["plain", "normalised"])
def scan(request):
    return linearised(tiny.dip_fit(request.param))


@pytest.fixture(scope="module")
def ggn(scan):
    design = scan.design.dense()
    return design.T @ design


def covariance(block):
    """Of the block's weights, from the deviations along its eigenvectors."""
    roots = block.to_weights(block.variances().sqrt().diag())
    return roots.T @ roots


def test_the_diagonal_is_that_of_the_matrix(scan, ggn):
    torch.testing.assert_close(ggn_diagonal(scan, ALL), ggn.diagonal(), rtol=1e-6, atol=1e-9)
    probes = 27  # one fewer than there are measurements
    repeats = torch.stack([ggn_diagonal(scan, probes, seed) for seed in range(200)])
    error = repeats.std(dim=0) / 200**0.5
    z = ((repeats.mean(dim=0) - ggn.diagonal()) / error)[ggn.diagonal() > 1e-9]
    assert z.square().mean() < 1.5
    assert (error < 1.2 * ggn.diagonal() * (2 / probes / 200) ** 0.5 + 1e-9).all()


def test_a_diagonal_block_is_the_inverse_of_its_diagonal(scan, ggn):
    blocks = diagonal_blocks(scan, ALL)
    assert torch.equal(torch.cat([b.index for b in blocks]), torch.arange(len(ggn)))
    for block in blocks:
        expected = 1 / (ggn.diagonal()[block.index] + block.precision())
        torch.testing.assert_close(covariance(block), expected.diag(), rtol=1e-6, atol=1e-12)


def test_the_last_layer_has_its_dense_block(scan, ggn):
    block = full_block(scan, last_layer(scan))
    size = scan.network.last.weight.numel()
    assert torch.equal(block.index, torch.arange(len(ggn))[-size:])
    dense = ggn[-size:, -size:] + block.precision() * torch.eye(size)
    torch.testing.assert_close(covariance(block), dense.inverse(), rtol=1e-6, atol=1e-9)


def test_a_subnetwork_of_all_weights_is_the_linearised_posterior(scan, ggn):
    diagonal = diagonal_blocks(scan, ALL)
    index, units = most_variable(diagonal, ALL)
    block = full_block(scan, index, units)
    back = index.argsort()
    assert torch.equal(index[back], torch.arange(len(ggn)))
    prior = units[back].square() / block.precision()
    found = covariance(block)[back][:, back]
    # by its kernel: Σ − Σ JᵀBᵀ (B J Σ JᵀBᵀ + I)⁻¹ B J Σ
    design = scan.design.dense()
    inner = design * prior @ design.T + torch.eye(len(design))
    expected = prior.diag() - (prior[:, None] * design.T) @ torch.linalg.solve(inner, design * prior)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8 * float(prior.max()))


def test_a_subnetwork_has_the_largest_variances(scan):
    blocks = diagonal_blocks(scan, ALL)
    index, units = most_variable(blocks, 10)
    variances = torch.empty(scan.jacobian.domain_shape[0], dtype=torch.float64)
    for block in blocks:
        variances[block.index] = block.variances()
        assert (units[torch.isin(index, block.index)] ** -2 - block.precision()).abs().lt(1e-6).all()
    assert variances[index].min() >= variances.sort(descending=True).values[9]


def test_the_prior_precision_maximises_the_dense_evidence(scan, ggn):
    block = full_block(scan, last_layer(scan))
    dense, weights = ggn[block.index][:, block.index], scan.jacobian.weights[block.index]

    def evidence(precision):
        log_det = torch.logdet(dense + precision * torch.eye(len(dense)))
        quadratic = precision * weights.square().sum()
        return float(0.5 * (len(dense) * torch.tensor(precision).log() - quadratic - log_det))

    best = block.precision()
    assert block.log_evidence() == pytest.approx(evidence(best), rel=1e-5)
    assert evidence(best) > max(evidence(0.9 * best), evidence(1.1 * best))
    noise = torch.distributions.Normal(0, 1).log_prob(scan.residual).sum() - scan.log_noise
    assert log_marginal_likelihood(scan, [block]) == pytest.approx(float(noise) + block.log_evidence())


def test_weights_that_nothing_determines_have_a_finite_prior():
    assert 0 < prior_precision(torch.zeros(3, dtype=torch.float64), 2.0) < 1e-10
    many = prior_precision(torch.full((4,), 1e12, dtype=torch.float64), 2.0)
    assert many == pytest.approx(4 / 2)


class OnePlace(nn.Module):
    """One convolution as large as the image, and a fixed map of its outputs to an image: linear."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.convolution = nn.Conv2d(1, 4, 5, bias=False)
        self.convolution.weight.data.normal_(generator=generator)
        self.register_buffer("shown", torch.randn(4, 30, generator=generator))

    def forward(self, x):
        return (self.convolution(x[..., :5, :5])[..., 0, 0] @ self.shown).reshape(1, 1, *tiny.IMAGE)


def own_fit(network):
    plain = tiny.dip_fit()
    return type(plain)(**{**vars(plain), "template": network, "weights": dict(network.named_parameters())})


def test_kronecker_factors_are_exact_for_one_layer_with_one_place():
    scan = linearised(own_fit(OnePlace()))
    (block,) = kfac_blocks(scan, ALL)
    design = scan.design.dense()
    dense = design.T @ design + block.precision() * torch.eye(design.shape[1])
    torch.testing.assert_close(covariance(block), dense.inverse(), rtol=1e-5, atol=1e-8)


def test_kronecker_factors_have_the_trace_of_their_terms(scan):
    """By its definition ``tr H = Σ_it |g_it|² · 1/T Σ_t |a_t|²``, with cotangents by hand."""
    block = kfac_blocks(scan, ALL)[-1]
    network, seen = scan.network, []
    handle = network.last.register_forward_hook(lambda _, parts, output: seen.extend([parts[0], output]))
    with torch.no_grad():
        network(scan.network_input)
    handle.remove()
    a, z = seen
    slope = torch.sigmoid(z) * (1 - torch.sigmoid(z))  # the last layer has one output, the image before it
    cotangents = scan.whitened.dense().reshape(-1, *tiny.IMAGE) * slope[0, 0]
    expected = cotangents.square().sum() * a.square().sum(dim=1).mean()
    assert float(block.eigenvalues.sum()) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("make", [diagonal_blocks, kfac_blocks])
def test_draws_have_the_mean_and_the_covariance_of_the_blocks(scan, make):
    blocks, jacobian = make(scan, ALL), scan.jacobian.dense()
    weights = torch.zeros(jacobian.shape[1], jacobian.shape[1], dtype=torch.float64)
    for block in blocks:
        weights[block.index[:, None], block.index] = covariance(block)
    expected = (jacobian @ weights @ jacobian.T).diagonal()
    images = torch.cat(list(draw_images(scan, blocks, 4000))).flatten(1)
    z = (images.mean(dim=0) - scan.jacobian.image.flatten()) / (expected / 4000).sqrt()
    assert z.square().mean() < 3  # pixels are correlated
    torch.testing.assert_close(images.var(dim=0) / expected, torch.ones(30).double(), rtol=0, atol=0.12)


def test_rescaling_one_layer_against_the_next_changes_nothing():
    fit = tiny.dip_fit()
    scaled = dict(fit.weights)
    for name in ("ups.0.convolutions.second.weight", "ups.0.convolutions.second.bias"):
        scaled[name] = 5 * scaled[name]
    scaled["last.weight"] = scaled["last.weight"] / 5
    both = [linearised(fit), linearised(type(fit)(**{**vars(fit), "weights": scaled}))]
    blocks = [diagonal_blocks(one, ALL) for one in both]
    assert blocks[1][-1].precision() == pytest.approx(25 * blocks[0][-1].precision(), rel=1e-4)
    before, after = (torch.cat(list(draw_images(*pair, 20))) for pair in zip(both, blocks, strict=True))
    torch.testing.assert_close(before, after, rtol=1e-4, atol=1e-5)


def test_a_prediction_adds_the_floor_to_draws_and_deviations(scan):
    images = torch.zeros(3000, *tiny.IMAGE)
    images[::2, 0, 0] = 2.0
    found = drawn_prediction([images], scan.whitened, tiny.SCALE)
    floor = found.diagnostics["floor_std"]
    assert floor > 0
    assert found.std[1, 1] == pytest.approx(floor)
    assert found.std[0, 0] == pytest.approx((tiny.SCALE**2 + floor**2) ** 0.5, rel=1e-3)
    assert found.samples.std(axis=0)[1:].mean() == pytest.approx(floor, rel=0.02)
    shown = drawn_prediction([images], scan.whitened, tiny.SCALE, mean=torch.ones(tiny.IMAGE))
    assert shown.mean[1, 1] == tiny.SCALE
    assert shown.std[1, 1] == pytest.approx((tiny.SCALE**2 + floor**2) ** 0.5)
