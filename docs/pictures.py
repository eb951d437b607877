"""Draw the pictures of docs/understand/theory.md: ``python docs/pictures.py``, about a minute on one core.

One generated object (ellipses, 28 × 28 pixels, 20 views, 5 % noise, seed 0) goes through every step; the
held-out view is of another one (walnut, 2 % noise), whose error bars need to be widened.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.stats import norm, t

import ct_dip
from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.data.scan import Scan
from ct_dip.dip.ensemble import DipFit
from ct_dip.evaluation.heldout import heldout_views, predict_views
from ct_dip.evaluation.near import near_object
from ct_dip.evaluation.widening import fit_widening
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact import LinearModel, prior_covariance
from ct_dip.posterior.exact_model import linear_model
from ct_dip.posterior.posterior import Posterior
from ct_dip.posterior.problem import linear_problem
from ct_dip.tangent.linearise import linearise

OUT = Path(__file__).parent / "pictures"
GRAY: dict[str, Any] = {"cmap": "gray", "interpolation": "nearest"}
SIGNED: dict[str, Any] = {"cmap": "RdBu_r", "interpolation": "nearest"}


def main() -> None:
    """Draw everything."""
    torch.set_num_threads(1)
    OUT.mkdir(exist_ok=True)
    plt.rcParams.update(
        {
            "font.size": 8,
            "axes.titlesize": 8,
            "figure.dpi": 110,
            "savefig.bbox": "tight",
            "figure.constrained_layout.use": True,
        }
    )
    geometry = ct_dip.scanner(ct_dip.Volume(shape=(28, 28)), views=20)
    scan = ct_dip.simulate("ellipses", geometry, noise=ct_dip.NoiseLevel(relative=0.05), seed=0)
    posterior = ct_dip.reconstruct(scan, method="lin-dip").posterior
    fit, model = posterior.problem.fit, linear_model(posterior.problem)
    draw_scan(scan)
    draw_fit(scan, fit)
    draw_linearisation(posterior)
    draw_prior(posterior, model)
    draw_predcp(scan, fit, posterior)
    draw_evidence(posterior, model)
    draw_regimes(posterior, model)
    draw_complement(posterior, model)
    draw_posterior(scan, posterior)
    draw_student(scan, posterior)
    walnut = ct_dip.simulate("walnut", geometry, noise=ct_dip.NoiseLevel(relative=0.02), seed=0)
    draw_held_out(walnut)


def _images(images: dict[str, Floats], name: str, options: Sequence[dict[str, Any]] | None = None) -> None:
    """Save images side by side, each with its own scale unless told."""
    figure, axes = plt.subplots(1, len(images), figsize=(1.75 * len(images), 1.9))
    for number, (axis, (title, image)) in enumerate(zip(np.atleast_1d(axes), images.items(), strict=True)):
        shown = axis.imshow(image, **(GRAY if options is None else options[number]))
        axis.set_title(title)
        axis.set_axis_off()
        bar = figure.colorbar(shown, ax=axis, orientation="horizontal", fraction=0.05, pad=0.03)
        bar.ax.tick_params(labelsize=6)
        bar.locator = matplotlib.ticker.MaxNLocator(3)
    _save(figure, name)


def _save(figure: plt.Figure, name: str) -> None:
    figure.savefig(OUT / f"{name}.png")
    plt.close(figure)


def draw_scan(scan: Scan) -> None:
    """What is given: the object is known here, as it was generated."""
    image = fbp(torch.as_tensor(scan.sinogram.copy()), scan.geometry, filter="hann").numpy()
    total_variation = ct_dip.reconstruct(scan, method="tv").mean
    truth = scan.ground_truth
    assert truth is not None
    scale = {**GRAY, "vmin": 0, "vmax": truth.max()}
    _images(
        {
            "object, 1/mm": truth,
            "sinogram y": scan.sinogram,
            "filtered back-projection": image,
            "total variation": total_variation,
        },
        "scan",
        [scale, {**GRAY, "aspect": 41 / 20}, scale, scale],
    )


def draw_fit(scan: Scan, fit: DipFit) -> None:
    """The network's image, and the misfit while it was found."""
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2), width_ratios=(1, 1.6, 1.6))
    axes[0].imshow(fit.image, **GRAY)
    axes[0].set_title("network's image f(w̃)")
    axes[0].set_axis_off()
    axes[1].semilogy(fit.traces["misfit"], lw=1)
    axes[1].axhline(1, color="gray", ls=":", label="noise")
    axes[1].set(xlabel="step", title="misfit", ylim=(0.5, 100))
    axes[1].legend(frameon=False)
    axes[2].plot(fit.traces["psnr"], lw=1)
    axes[2].set(xlabel="step", title="PSNR, dB (the fit does not see it)")
    _save(figure, "fit")


def draw_linearisation(posterior: Posterior) -> None:
    """The network and its tangent along one direction of the prior."""
    problem = posterior.problem
    jacobian, fit = problem.jacobian, problem.fit
    covariance = problem.prior.covariance(posterior.evidence.theta[: len(problem.prior.start)])
    generator = torch.Generator().manual_seed(1)
    step = covariance.root(torch.randn(1, len(jacobian.weights), generator=generator))[0]
    network, image = fit.network(), jacobian.image
    parameters = dict(network.named_parameters())
    tangent = jacobian(step)
    shifts = np.linspace(-0.1, 0.1, 21)
    truth = []
    for shift in shifts:
        with torch.no_grad():
            start = 0
            for block in jacobian.blocks:
                for name in block.parameters:
                    size = parameters[name].numel()
                    moved = fit.weights[name] + shift * step[start : start + size].view_as(parameters[name])
                    parameters[name].copy_(moved)
                    start += size
            truth.append((network(fit.network_input)[0, 0] - image).numpy())
    inside = image > 0.5 * image.max()
    pixel = int((tangent.abs() * inside).argmax())
    limit = float(0.05 * (tangent.abs() * inside).max())
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2), width_ratios=(1, 1, 1.8))
    small = int(np.argmin(np.abs(shifts - 0.05)))
    for axis, values, title in (
        (axes[0], truth[small], "f(w̃ + 0.05 δw) − f(w̃)"),
        (axes[1], 0.05 * tangent.numpy(), "0.05 J δw"),
    ):
        axis.imshow(values, vmin=-limit, vmax=limit, **SIGNED)
        axis.set_title(title)
        axis.set_axis_off()
    axes[2].plot(shifts, [values.flat[pixel] for values in truth], label="network")
    axes[2].plot(shifts, shifts * float(tangent.flatten()[pixel]), "--", label="tangent J δw")
    axes[2].set(xlabel="t, along w̃ + t δw", title="change of one pixel", xticks=(-0.1, -0.05, 0, 0.05, 0.1))
    axes[2].legend(frameon=False)
    _save(figure, "linearisation")


def draw_prior(posterior: Posterior, model: LinearModel) -> None:
    """Images that the prior of the weights allows, and how one pixel goes with all others."""
    problem = posterior.problem
    theta = posterior.evidence.theta
    covariance = problem.prior.covariance(theta[: len(problem.prior.start)])
    generator = torch.Generator().manual_seed(0)
    weights = covariance.root(torch.randn(3, len(problem.jacobian.weights), generator=generator))
    draws = problem.images(weights).reshape(3, 28, 28).numpy()
    dense = prior_covariance(model, theta)
    pixel = int(posterior.dip.argmax())
    row = (dense[pixel] / (dense.diagonal() * dense[pixel, pixel]).sqrt()).reshape(28, 28).numpy()
    limit = float(np.quantile(np.abs(draws), 0.995))
    signed = {**SIGNED, "vmin": -limit, "vmax": limit}
    _images(
        {
            "a draw of J w": draws[0],
            "another": draws[1],
            "another ": draws[2],
            "prior deviation": dense.diagonal().sqrt().reshape(28, 28).numpy(),
            "correlation with one pixel": row,
        },
        "prior",
        [signed, signed, signed, {"cmap": "magma"}, {**SIGNED, "vmin": -1, "vmax": 1}],
    )


def draw_predcp(scan: Scan, fit: DipFit, posterior: Posterior) -> None:
    """Expected total variation against the tap length of a block, and the prior that follows."""
    config = InferenceConfig(hyperprior="tv-predcp", objective="optimum", regime="exact")
    problem = posterior.problem
    jacobian = linearise(fit.network(), fit.network_input)
    full = linear_model(linear_problem(fit, scan, jacobian, config, problem.whitened.transform))
    hyperprior, prior = full.evidence.hyperprior, full.evidence.prior
    lengths = np.geomspace(0.2, 20, 40)
    figure, axes = plt.subplots(1, 4, figsize=(7.4, 1.9), width_ratios=(1.6, 1.6, 1, 1))
    for place, block in list(enumerate(prior.wide))[:4]:
        name = prior.blocks[block].name
        first = len(prior.blocks)
        kappas, densities = [], []
        for length in lengths:
            theta = prior.start.clone()
            theta[first + place] = math.log(length)
            theta.requires_grad_()
            kappa = hyperprior.expected_tv(theta, block)
            (slope,) = torch.autograd.grad(kappa, theta)
            kappas.append(float(kappa.detach()))
            jacobian_term = math.log(abs(float(slope[first + place])) / length)
            densities.append(-hyperprior.strength * float(kappa.detach()) + jacobian_term)
        axes[0].semilogx(lengths, kappas, label=name)
        axes[1].semilogx(lengths, np.array(densities) - max(densities), label=name)
    axes[0].set(xlabel="tap length ℓ", title="expected TV, κ(ℓ)")
    axes[1].set(xlabel="tap length ℓ", title="log p(ℓ), up to a constant")
    axes[0].legend(frameon=False, fontsize=6)
    generator = torch.Generator().manual_seed(3)
    noise = torch.randn(1, len(jacobian.weights), generator=generator)
    for axis, length in zip(axes[2:], (0.2, 5.0), strict=True):
        theta = prior.start.clone()
        theta[len(prior.blocks) :] = math.log(length)
        image = jacobian(prior.covariance(theta).root(noise))[0].numpy()
        axis.imshow(image, **SIGNED, vmin=-2, vmax=2)
        axis.set_title(f"draw, ℓ = {length:g}")
        axis.set_axis_off()
    _save(figure, "predcp")


def draw_evidence(posterior: Posterior, model: LinearModel) -> None:
    """The evidence around its optimum."""
    evidence, best = model.evidence, posterior.evidence.theta
    scales, noises = np.linspace(-3, 3, 31), np.linspace(-0.6, 0.8, 31)
    values = np.empty((31, 31))
    for i, scale in enumerate(scales):
        for j, noise in enumerate(noises):
            theta = best.clone()
            theta[0] += scale
            theta[-1] = noise
            values[j, i] = float(evidence.log_evidence(theta))
    figure, axis = plt.subplots(figsize=(3.6, 2.6))
    below = values - values.max()
    lines = axis.contourf(
        scales + float(best[0]), noises, below, levels=[-200, -100, -50, -20, -10, -5, -2, 0]
    )
    axis.plot(float(best[0]), float(best[-1]), "r+", label="optimum")
    axis.axhline(0, color="white", ls=":", label="stated noise")
    axis.set(
        xlabel="log-scale of the prior", ylabel="log s²", title="log p(y | θ) below its largest value, nats"
    )
    axis.legend(fontsize=6)
    figure.colorbar(lines)
    _save(figure, "evidence")


def draw_regimes(posterior: Posterior, model: LinearModel) -> None:
    """How few directions of the sinogram the network explains."""
    theta = posterior.evidence.theta
    prior, _, noise = model.evidence.split(theta)
    gram = float(model.evidence.prior.coefficients(prior)[0]) * model.grams[0].double()
    signal = model.design @ gram @ model.design.T / float(noise.exp())
    values = torch.linalg.eigvalsh(signal).flip(0).clamp_min(1e-12).numpy()
    left = np.array([values[k:].sum() for k in range(len(values))]) / min(signal.shape[0], 28**2)
    figure, axes = plt.subplots(1, 2, figsize=(6.4, 2.1))
    axes[0].semilogy(values)
    axes[0].axhline(1, color="gray", ls=":", label="noise")
    axes[0].set(xlabel="direction of the sinogram", title="variance of the signal over that of the noise")
    axes[0].set(ylim=(1e-5, None))
    axes[0].legend(frameon=False)
    axes[1].semilogy(left)
    axes[1].axhline(6e-4, color="gray", ls=":", label="allowed by default")
    axes[1].set(xlabel="rank of the best basis", title="trace left out, as a share of the noise's")
    axes[1].set(ylim=(1e-6, None))
    axes[1].legend(frameon=False)
    _save(figure, "regimes")


def draw_complement(posterior: Posterior, model: LinearModel) -> None:
    """What the network cannot show has a variance of its own."""
    complement = posterior.problem.complement
    assert complement is not None
    factor = float(model.evidence.complement_factor(posterior.evidence.theta))
    own = posterior.scale * (factor * complement.variance).sqrt().reshape(28, 28).numpy()
    magma = {"cmap": "magma", "vmin": 0}
    _images(
        {"f(w̃), 1/mm": posterior.dip, "complement's deviation": own, "posterior deviation": posterior.std},
        "complement",
        [GRAY, magma, magma],
    )


def draw_held_out(scan: Scan) -> None:
    """A view that the network did not see, predicted before and after widening."""
    unseen = heldout_views(scan.geometry)
    part = scan.select_views(~unseen)
    fit = ct_dip.fit_dip(part)
    posterior = ct_dip.fit_posterior(fit, part)
    residuals = predict_views(_Predicted(posterior), scan, unseen)
    widening = fit_widening([residuals])
    view = len(residuals.views) // 2
    measured = scan.sinogram[residuals.views[view]]
    figure, axes = plt.subplots(1, 2, figsize=(7, 2.2), sharey=True)
    for axis, factor, title in (
        (axes[0], 1.0, "as the model has it"),
        (axes[1], widening, f"a = {widening:.2f}"),
    ):
        std = np.sqrt(factor * np.mean(residuals.spread[:, view] ** 2, axis=0) + residuals.fitted_noise[view])
        middle = measured - residuals.error[view]
        axis.fill_between(range(len(middle)), middle - 1.96 * std, middle + 1.96 * std, alpha=0.35)
        axis.plot(measured, "k.", ms=3)
        axis.set(xlabel="detector", title=f"a held-out view, 95 % band, {title}")
    axes[0].set_ylabel("line integral")
    _save(figure, "held-out")


class _Predicted:
    """What held-out views need to know of a posterior."""

    def __init__(self, posterior: Posterior) -> None:
        self.mean, self.samples = posterior.mean, posterior.sample(200)
        self.diagnostics = {"sigma_y": posterior.noise_std, "sigma_y_stated": posterior.stated_noise_std}


def draw_posterior(scan: Scan, posterior: Posterior) -> None:
    """Image, error bars, the true error, and samples."""
    truth = scan.ground_truth
    assert truth is not None
    scale = {**GRAY, "vmin": 0, "vmax": truth.max()}
    first, second = posterior.sample(2)
    top = float(posterior.std.max())
    magma = {"cmap": "magma", "vmin": 0, "vmax": top}
    _images(
        {
            "image, 1/mm": posterior.mean,
            "standard deviation": posterior.std,
            "|truth − image|": np.abs(truth - posterior.mean),
            "a sample": first,
            "another": second,
        },
        "posterior",
        [scale, magma, magma, scale, scale],
    )


def draw_student(scan: Scan, posterior: Posterior) -> None:
    """Errors in units of their error bars, beside the two distributions."""
    truth = scan.ground_truth
    assert truth is not None
    near = near_object(truth, scan.evaluated)
    z = ((truth - posterior.mean) / posterior.std)[near]
    grid = np.linspace(-5, 5, 400)
    figure, axis = plt.subplots(figsize=(4.2, 2.1))
    axis.hist(
        z.clip(-5, 5), bins=41, range=(-5, 5), density=True, color="0.75", label="pixels near the object"
    )
    axis.plot(grid, norm.pdf(grid), label="Gaussian")
    axis.plot(grid, math.sqrt(3) * t.pdf(math.sqrt(3) * grid, 3), label="Student, ν = 3")
    axis.set(xlabel="(truth − image)/deviation", yticks=[])
    axis.legend(frameon=False, fontsize=6)
    _save(figure, "student")


if __name__ == "__main__":
    main()
