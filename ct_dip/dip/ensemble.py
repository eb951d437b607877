"""Fit N networks to N sinograms of one geometry, step by step."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from ct_dip.arrays import Floats
from ct_dip.classical.fbp import fbp
from ct_dip.data.scan import Scan
from ct_dip.dip.adam import Adam
from ct_dip.dip.config import ResolvedDipConfig
from ct_dip.dip.objective import make_targets, objective
from ct_dip.dip.presets import unet_shape
from ct_dip.dip.schedule import Schedule
from ct_dip.dip.start import Start, make_starts
from ct_dip.dip.stopping import Budget, Discrepancy, RunningVariance, StoppingRule
from ct_dip.dip.unet import UNet
from ct_dip.errors import CtDipError, InputError
from ct_dip.operators.linear_map import LinearMap
from ct_dip.quality import psnr

_ROLLBACK_STEPS = 100
_PSNR_STEPS = 25  # a PSNR takes a copy of the image to the host
# After the warm-up, a loss this many times the first one means that the network is lost: it may have
# exploded, or collapsed to a constant image, from which no gradient leads back.
_LOST = 2.0
# A network that is still hot strays around its goal: it cools down from this many times TV's misfit on. Of
# 1, 1.05, 1.1 and 1.15 it took a third of the steps away, and 0.2 dB at most; see experiments/README.md.
_NEAR_TV = 1.1
# A guard: fits that are at rest end with at most 1.3 times the misfit of TV or of the noise, one that was
# thrown off, 2.4 dB below TV, ended with 1.9 times. See experiments/README.md.
_UNFINISHED = 1.5


class FitDivergedError(CtDipError):
    """A fit whose loss exploded twice; exit code 1."""


@dataclass(frozen=True, kw_only=True)
class DipFit:
    """A fitted network, ready to be linearised.

    Args:
        image: ``scale · f(w̃)``, 1/mm, (rows, columns).
        template: the network before its fit, a `UNet` or a module of the user's own.
        weights: w̃ by parameter name.
        network_input: (1, 1, rows, columns).
        scale: 1/mm per unit of the network's output.
        strength: of TV relative to the noise, as given or chosen.
        tv_weight: λ of the fit: ``exp(−λ TV)`` is the prior of the O(1) image that its TV stands for.
        misfit: mean squared standardised residual of the image; 1 is the noise.
        tv_misfit: that of plain TV of the same strength.
        stopped_by: the rule that began the cool-down.
        traces: loss, misfit, and PSNR where a truth is known, by step; the PSNR is that of every 25th step,
            which stays until the next one, and of the last.
        sinogram: that the network was fitted to, if it is known.
    """

    image: Floats
    template: nn.Module
    weights: dict[str, Tensor]
    network_input: Tensor
    scale: float
    strength: float
    tv_weight: float
    steps: int
    misfit: float
    tv_misfit: float
    loss: float
    stopped_by: str
    traces: dict[str, Floats]
    sinogram: Floats | None = None

    @property
    def unfinished(self) -> bool:
        """Whether the network explains the sinogram far worse than TV and the noise: its image is blurred."""
        return self.misfit > _UNFINISHED * max(1.0, self.tv_misfit)

    def __repr__(self) -> str:
        rows, columns = self.image.shape
        weights = sum(fitted.numel() for fitted in self.weights.values())
        return (
            f"<{type(self).__name__}: {rows} × {columns} pixels, {type(self.template).__name__} of {weights} "
            f"weights, {self.steps} steps, misfit {self.misfit:.3g}, stopped by {self.stopped_by}>"
        )

    def check_scan(self, scan: Scan) -> None:
        """Refuse a scan with another grid or other measurements; its noise and geometry may be corrected.

        Raises:
            InputError: the network was fitted to another scan.
        """
        if self.image.shape != scan.geometry.domain_shape:
            raise InputError(
                f"the fit has shape {self.image.shape}, the scan's image {scan.geometry.domain_shape}; "
                "give the scan that it was fitted to"
            )
        if self.sinogram is not None and not np.array_equal(self.sinogram, scan.sinogram):
            raise InputError(
                "the fit is that of another scan, with another sinogram; give the scan that it was fitted to"
            )

    @torch.no_grad()
    def network(self) -> nn.Module:
        """Return a new network with the fitted weights."""
        network = copy.deepcopy(self.template)
        for name, fitted in self.weights.items():
            network.get_parameter(name).copy_(fitted)
        return network


class Ensemble:
    """N networks while they are fitted: flat weights (N, P), an optimiser, a stopping rule.

    Args:
        network: in place of the U-Net; all N start from its weights. See `ct_dip.dip.own_network`.
        starts: of the scans, where they are known; made of them by total variation if not.

    Attributes:
        variant: of a subclass, what makes its fit another than this one.
    """

    variant = ""

    def __init__(
        self,
        scans: Sequence[Scan],
        config: ResolvedDipConfig,
        seeds: Sequence[int],
        transform: LinearMap,
        device: torch.device,
        network: nn.Module | None = None,
        starts: Sequence[Start] | None = None,
    ) -> None:
        self.scans, self.config, self.device = scans, config, device
        # Of its tensors a step uses the buffers alone, which a U-Net has none of.
        self.template = UNet(unet_shape(config)) if network is None else copy.deepcopy(network).cpu().float()
        self.skeleton = copy.deepcopy(self.template).to("meta" if network is None else device)
        self.sizes = {name: p.shape for name, p in self.skeleton.named_parameters()}
        if starts is None:
            distinct = {id(scan): scan for scan in scans}
            made = make_starts(list(distinct.values()), config, transform, device)
            of_scan = dict(zip(distinct, made, strict=True))
            starts = [of_scan[id(scan)] for scan in scans]
        self.scales = [start.scale for start in starts]
        self.strengths = [start.strength for start in starts]
        self.tv_misfits = [start.tv_misfit for start in starts]
        self.targets = make_targets(
            scans,
            [start.variance for start in starts],
            self.scales,
            transform,
            strengths=self.strengths,
            data_term=config.data_term,
            device=device,
        )
        self.generator = torch.Generator().manual_seed(seeds[0])
        weights, inputs = [], []
        for scan, start, seed in zip(scans, starts, seeds, strict=True):
            relative = start.image / start.scale
            generator = torch.Generator().manual_seed(seed)
            member = copy.deepcopy(self.template)
            if network is None:
                assert isinstance(member, UNet)
                member.initialise(generator, float(relative.mean().clamp(0.02, 0.9)))
            weights.append(torch.cat([p.detach().flatten() for p in member.parameters()]))
            if config.input == "tv":
                inputs.append(relative)
            elif config.input == "fbp":
                inputs.append(fbp(start.sinogram, scan.geometry, filter="hann") / start.scale)
            else:
                inputs.append(torch.rand(relative.shape, generator=generator).to(relative))
        self.inputs = torch.stack(inputs)
        self.adam = Adam(torch.stack(weights).to(device))
        self.schedule = Schedule(
            peak=config.learning_rate,
            warmup=config.warmup_steps,
            cooldown=config.cooldown_steps,
            budget=config.max_steps,
        )
        self.rule = self._make_rule(starts)
        self.rule.state = {name: tensor.to(device) for name, tensor in self.rule.state.items()}
        members = len(scans)
        self.cooling_since = torch.full((members,), -1)
        self.by_rule = torch.zeros(members, dtype=torch.bool)
        self.rate_factor = torch.ones(members)  # smaller after a divergence
        self.done = torch.zeros(members, dtype=torch.bool)
        self.kept = self.adam.weights.clone()
        self.stopped_at = torch.zeros(members, dtype=torch.long)
        self.traces: dict[str, list[Tensor]] = {"loss": [], "misfit": [], "psnr": []}
        self.rollback: dict[str, Tensor] = {}
        value = objective(transform, config.data_term, device)

        def loss(
            flat: Tensor, z: Tensor, ramp: Tensor, *target: Tensor
        ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            image = self._image(flat, z)
            total, fit = value(image, ramp, *target)
            return total, (fit, image)

        self.loss = loss

    def _make_rule(self, starts: Sequence[Start]) -> StoppingRule:
        config, members = self.config, len(self.scans)
        choice = config.stopping
        if choice == "auto":
            # An estimated noise level is an upper one and knows nothing of model errors.
            choice = "discrepancy" if all(start.noise_known for start in starts) else "variance"
        if choice == "discrepancy":
            # Where TV leaves more than the noise, as on a pixel grid that is too coarse, a network with it
            # does so, too: to wait for the noise would be to wait for the end of the budget.
            left = [max(config.discrepancy, _NEAR_TV * start.tv_misfit) for start in starts]
            return Discrepancy(members, target=torch.tensor(left))
        if choice == "variance":
            # While the rate is high the iterates jump, and their variance has early minima that mean little.
            patience = max(1, config.max_steps // 2)
            return RunningVariance(members, self.scans[0].geometry.domain_shape, patience=patience)
        return Budget()

    def _image(self, flat: Tensor, z: Tensor) -> Tensor:
        """Compute the O(1) image (rows, columns) of flat weights (P,)."""
        output: Tensor = functional_call(self.skeleton, self._unflatten(flat), (z[None, None],))
        return output[0, 0]

    def _unflatten(self, flat: Tensor) -> dict[str, Tensor]:
        parts = torch.split(flat, [size.numel() for size in self.sizes.values()])
        return {name: part.view(size) for (name, size), part in zip(self.sizes.items(), parts, strict=True)}

    @property
    def finished(self) -> bool:
        """Whether every network has cooled down."""
        return bool(self.done.all())

    def step(self) -> dict[str, float]:
        """Take one optimiser step of the networks that are not done; return figures to show."""
        step = self.adam.steps
        if step % _ROLLBACK_STEPS == 0 or not self.rollback:
            self.rollback = _copy(self.state())
        z = self.inputs
        if self.config.jitter:
            noise = torch.randn(z.shape, generator=self.generator).to(z)
            z = z + self.config.jitter * noise
        # A network whose rule fires now is as hot as before, so that the rates of this step are known.
        ramps = self.config.ramp * self.schedule.heat(step, self.cooling_since)
        rates = self.schedule.rates(step, self.cooling_since) * self.rate_factor
        ramp, rate = torch.stack([ramps, rates]).to(self.device)
        gradient, loss, misfit, images = self._evaluate_all(z, ramp)
        fires = self.rule.update(step, misfit, images)
        loss, misfit, fires = torch.stack([loss, misfit, fires.to(loss)]).cpu()  # all that the host is told
        self._record(loss, misfit, images)
        if self._diverged(loss):
            return {"loss": float(loss.nanmean())}
        fires = fires.bool() & (self.cooling_since < 0)
        self.by_rule |= fires
        fires |= (self.cooling_since < 0) & (step >= self.schedule.latest_cooldown)
        self.cooling_since[fires] = step
        self.adam.step(gradient, rate)
        newly = self._done_after(step)
        for i in newly.nonzero()[:, 0].tolist():
            self.kept[i] = self.adam.weights[i]
        self.stopped_at[newly] = step + 1
        self.done |= newly
        figures = {"loss": float(loss.nanmean()), "misfit": float(misfit.nanmean())}
        if self.traces["psnr"]:
            figures["psnr"] = float(self.traces["psnr"][-1].nanmean())
        return figures

    def _done_after(self, step: int) -> Tensor:
        """Return which networks take their last step now, (N,) bool."""
        return self.schedule.done(step + 1, self.cooling_since) & ~self.done

    def _evaluate_all(self, z: Tensor, ramp: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Compute gradients (N, P), losses and misfits (N,), and O(1) images (N, rows, columns).

        Networks that are done cost nothing: their rows are zero (gradients) or NaN.
        """
        target = (ramp, *vars(self.targets).values())
        numbers = (~self.done).nonzero()[:, 0]
        active: Tensor | slice
        if len(numbers) == 1:
            # One network does not pay for being an ensemble: plain autograd is a third faster.
            i = int(numbers[0])
            active = slice(i, i + 1)
            flat = self.adam.weights[i].clone().requires_grad_()
            loss, (misfit, image) = self.loss(flat, z[i], *(t[i] for t in target))
            (gradient,) = torch.autograd.grad(loss, flat)
            outputs = [gradient[None], loss.detach()[None], misfit.detach()[None], image.detach()[None]]
        else:
            active = numbers.to(self.device)
            rows = (self.adam.weights[active], z[active], *(t[active] for t in target))
            gradients, (losses, (misfits, images)) = vmap(grad_and_value(self.loss, has_aux=True))(*rows)
            outputs = [gradients, losses, misfits, images]
        if len(numbers) < len(self.scans):
            for place, (values, empty) in enumerate(zip(outputs, (0.0, *[torch.nan] * 3), strict=True)):
                outputs[place] = values.new_full((len(self.scans), *values.shape[1:]), empty)
                outputs[place][active] = values
        return outputs[0], outputs[1], outputs[2], outputs[3]

    def _record(self, loss: Tensor, misfit: Tensor, images: Tensor) -> None:
        step, quality = self.adam.steps, self.traces["psnr"]
        self.traces["loss"].append(loss)
        self.traces["misfit"].append(misfit)
        if any(scan.ground_truth is None for scan in self.scans):
            return
        if quality and step % _PSNR_STEPS and not self._done_after(step).any():
            quality.append(quality[-1])
        else:
            shown = images.cpu().numpy()
            values = [
                torch.nan if done else psnr(scale * image, scan.ground_truth, scan.evaluated)
                for done, scan, scale, image in zip(self.done, self.scans, self.scales, shown, strict=True)
                if scan.ground_truth is not None
            ]
            quality.append(torch.tensor(values))

    def _diverged(self, loss: Tensor) -> bool:
        """Go back up to a hundred steps, once per network, with a tenth of the step size."""
        warm = self.adam.steps > self.config.warmup_steps
        bad = ~torch.isfinite(loss) | (warm & (loss > _LOST * self.traces["loss"][0]))
        bad &= ~self.done
        if not bad.any():
            return False
        if (self.rate_factor[bad] < 1).any():
            raise FitDivergedError(
                f"the fit diverged twice, at step {self.adam.steps} for the second time; "
                "use a smaller dip.learning_rate"
            )
        factor = torch.where(bad, 0.1, self.rate_factor)
        self.restore(_copy(self.rollback))
        self.rate_factor = factor
        return True

    def state(self) -> dict[str, Tensor]:
        """Return everything that the rest of the fit depends on."""
        members = {
            name: getattr(self, name)
            for name in ("cooling_since", "by_rule", "rate_factor", "done", "kept", "stopped_at")
        }
        traces = {f"trace.{name}": torch.stack(values) for name, values in self.traces.items() if values}
        rule = {f"rule.{name}": tensor for name, tensor in self.rule.state.items()}
        return self.adam.state() | members | traces | rule | {"generator": self.generator.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave."""
        self.adam.restore(state)
        self.generator.set_state(state["generator"])
        for name in ("cooling_since", "by_rule", "rate_factor", "done", "kept", "stopped_at"):
            setattr(self, name, state[name].to(getattr(self, name).device))
        for name in self.traces:
            self.traces[name] = list(state.get(f"trace.{name}", torch.empty(0)))
        for name in self.rule.state:
            self.rule.state[name] = state[f"rule.{name}"].to(self.device)

    def fits(self) -> list[DipFit]:
        """Return the finished networks."""
        results = []
        for i, scale in enumerate(self.scales):
            with torch.no_grad():
                target = (t[i] for t in vars(self.targets).values())
                noise_model = torch.zeros((), device=self.device)  # no ramp: where the cool-down ends
                loss, (misfit, image) = self.loss(self.kept[i], self.inputs[i], noise_model, *target)
            end = int(self.stopped_at[i])
            traces = {name: torch.stack(v)[:end, i].numpy() for name, v in self.traces.items() if v}
            results.append(
                DipFit(
                    image=(scale * image).cpu().numpy(),
                    template=self.template,
                    weights={name: w.clone().cpu() for name, w in self._unflatten(self.kept[i]).items()},
                    network_input=self.inputs[i][None, None].cpu(),
                    scale=scale,
                    strength=self.strengths[i],
                    tv_weight=float(self.targets.penalty[i]) * self.scans[i].sinogram.size / 2,
                    steps=end,
                    misfit=float(misfit),
                    tv_misfit=self.tv_misfits[i],
                    loss=float(loss),
                    stopped_by=self.rule.name if self.by_rule[i] else "budget",
                    traces=traces,
                    sinogram=self.scans[i].sinogram,
                )
            )
        return results


def _copy(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in state.items()}
