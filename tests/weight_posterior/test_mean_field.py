"""Independent Gaussians over weights, on linear networks, where their optimum is known in closed form."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import nn

import tests.tiny as tiny
from ct_dip.operators import ray_transform
from ct_dip.weight_posterior.mean_field import (
    MeanField,
    draw_images,
    empirical_bayes,
    fit_mean_field,
    local_draw,
    weight_draw,
)
from ct_dip.weight_posterior.potential import Potential
from ct_dip.weight_posterior.variational_dropout import log_uniform, prune

SCAN = tiny.scan()
TRANSFORM = ray_transform(SCAN.geometry)
VARIANCE = torch.as_tensor(SCAN.variance_or_estimate()[0])


class Filter(nn.Module):
    """One convolution with as many places as pixels."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(1, 1, 3, padding=1, bias=False)
        self.convolution.weight.data.normal_(generator=torch.Generator().manual_seed(3))

    def forward(self, x):
        return self.convolution(x)


class OnePlace(nn.Module):
    """One convolution with one place, and a fixed map of its outputs to an image."""

    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.convolution = nn.Conv2d(1, 4, 2, bias=False)
        self.convolution.weight.data.normal_(generator=generator)
        self.register_buffer("shown", torch.randn(4, 30, generator=generator))

    def forward(self, x):
        return (self.convolution(x[..., :2, :2])[..., 0, 0] @ self.shown).reshape(1, 1, *tiny.IMAGE)


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        generator = torch.Generator().manual_seed(5)
        self.first = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.second = nn.Conv2d(6, 1, 3, padding=1, bias=False)
        for layer in (self.first, self.second):
            # Small: Adam long remembers the gradients of a start that is far from the data.
            layer.weight.data.normal_(std=0.1, generator=generator)

    def forward(self, x):
        return self.second(nn.functional.leaky_relu(self.first(x), 0.2))


def potential(network, sinogram=None):
    plain = tiny.dip_fit()
    weights = {name: p.detach() for name, p in network.named_parameters()}
    parts = vars(plain) | {"template": network, "weights": weights, "tv_weight": 0.0}
    sinogram = torch.as_tensor(SCAN.sinogram.copy()) if sinogram is None else sinogram
    return Potential(type(plain)(**parts), sinogram, VARIANCE, TRANSFORM)


def precision_diagonal(model, q):
    """Of the weights: that of the likelihood, and of the prior whose variance is fitted."""
    design = torch.autograd.functional.jacobian(lambda w: model.whitened(model.image(w)), model.start)
    prior = (q.mean.square() + (2 * q.log_std).exp()).mean()
    return design.square().sum(dim=0) + 1 / prior


@pytest.mark.parametrize(("network", "noise"), [(Filter, "weights"), (OnePlace, "local")])
def test_variances_are_the_inverse_of_the_precision_s_diagonal(network, noise):
    model = potential(network())
    q, trace = fit_mean_field(model, empirical_bayes, steps=1500, rate=3e-3, noise=noise)
    ratio = (2 * q.log_std).exp() * precision_diagonal(model, q)
    # A draw a step leaves noise: some percent in every variance, less in their mean.
    assert float(ratio.log().mean()) == pytest.approx(0, abs=0.15)
    assert ratio.log().abs().max() < 0.6
    assert trace[-100:].mean() < trace[:100].mean()


def test_local_noise_is_that_of_weights_in_a_pixel_and_less_in_a_line_integral():
    model = potential(Filter())
    q = MeanField(model.start, torch.full_like(model.start, 0.1).log())
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        both = [
            torch.stack([draw(model, q, generator) for _ in range(3000)])
            for draw in (weight_draw, local_draw)
        ]
    pixels, rays = ([images.var(dim=0) for images in part] for part in (both, map(model.whitened, both)))
    assert float((pixels[1] / pixels[0]).mean()) == pytest.approx(1, abs=0.03)
    assert float(rays[1].sum() / rays[0].sum()) < 0.5


def test_draws_leave_what_has_no_variance():
    model = potential(Filter())
    exact = MeanField(model.start, torch.full_like(model.start, -torch.inf))
    images = list(draw_images(model, exact, 2))
    assert torch.equal(images[0], images[1])
    assert torch.equal(images[0][0], model.image(model.start))


def test_empirical_bayes_is_the_least_divergence():
    generator = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(50, generator=generator), torch.randn(50, generator=generator)
    q = torch.distributions.Normal(mean, log_std.exp())
    scales = torch.linspace(0.2, 10, 2000)
    priors = [torch.distributions.Normal(0.0, s) for s in scales]
    least = min(float(torch.distributions.kl_divergence(q, p).sum()) for p in priors)
    assert float(empirical_bayes(mean, log_std)) == pytest.approx(least, rel=1e-4)


@pytest.mark.parametrize("log_alpha", [-6.0, -2.0, 0.0, 2.0, 6.0])
def test_the_divergence_of_dropout_is_near_the_integral(log_alpha):
    """``−KL = ½ log α − E log|ε| + const`` with ε ~ N(1, α), and 0 for α → ∞."""
    root = np.exp(log_alpha / 2)
    expected, _ = quad(
        lambda z: np.log(abs(1 + root * z)) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi),
        *(-12, 12),
        points=[max(-1 / root, -11.9)],
        limit=200,
    )
    exact = expected - log_alpha / 2 + (np.euler_gamma + np.log(2)) / 2
    found = log_uniform(torch.tensor([2.0]), torch.tensor([log_alpha / 2 + np.log(2.0)]))
    assert float(found) == pytest.approx(exact, abs=0.03)


def test_dropout_prunes_pure_noise_and_keeps_a_signal():
    noise = torch.randn(SCAN.sinogram.shape, generator=torch.Generator().manual_seed(0)) * VARIANCE.sqrt()
    sparsity = []
    for sinogram in (noise.float(), None):
        model = potential(TwoLayers(), sinogram)
        q, _ = fit_mean_field(model, log_uniform, steps=1200, rate=1e-2, noise="local", warm_up=0.3)
        pruned, fraction = prune(model, q)
        assert fraction == pytest.approx(float((pruned.mean == 0).float().mean()))
        assert torch.equal(pruned.mean == 0, pruned.log_std == -torch.inf)
        sparsity.append(fraction)
    assert sparsity[0] > 0.95
    assert sparsity[1] < 0.9
