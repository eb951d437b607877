"""Samples of a posterior that is known by its products, and the deviations that they give."""

import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ct_dip.checkpoint import stage_result, take
from ct_dip.posterior.compressed import Compressed
from ct_dip.posterior.conditional import WeightConditional
from ct_dip.posterior.deviations import Deviations
from ct_dip.progress import Progress

_CHUNK = 10  # samples that are made, and kept on disk, together
LEAST = 20  # samples that error bars need at the very least
_CLOSED_CHUNK = 64  # pixels of the closed form that are taken together


def draw_samples(
    conditional: WeightConditional,
    count: int,
    seed: int,
    *,
    deadline: float | None = None,
    folder: Path | None = None,
    digest: str = "",
    progress: Progress | None = None,
) -> Tensor:
    """Draw deviations from the mean, (n, pixels); at least `LEAST`, fewer than ``count`` if time is up.

    Args:
        deadline: of ``time.monotonic``.
        folder: where finished chunks are kept, labelled with ``digest``, so that a killed run goes on.
    """
    chunks: list[Tensor] = []
    pixels, like = conditional.problem.pixels, conditional.problem.jacobian.weights
    with (progress or Progress()).stage("samples", count) as stage:
        for number in range(-(-count // _CHUNK)):
            late = deadline is not None and time.monotonic() > deadline
            if late and number * _CHUNK >= LEAST:
                break
            size = min(_CHUNK, count - number * _CHUNK)
            chunk = stage_result(
                folder,
                f"samples-{number:03d}.npz",
                f"{digest} {seed} {size}",
                lambda size=size, number=number: {  # type: ignore[misc]
                    "samples": conditional.deviations(size, _generator(seed, number))
                },
                lambda state, size=size: {"samples": take(state, "samples", (size, pixels), like.dtype)},  # type: ignore[misc]
            )
            chunks.append(chunk["samples"].to(like.device))
            stage.update(number * _CHUNK + size)
    return torch.cat(chunks)


def _generator(seed: int, number: int) -> torch.Generator:
    """Make a generator for each chunk, so that it does not matter which ones were made before."""
    (state,) = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state) >> 1)


class SampledDeviations(Deviations):
    """Deviations known by samples; covariances come from these, or from closed forms where affordable.

    Args:
        conditional: the posterior.
        drawn: samples with ``seed``, (n, pixels).
        floor: variance that is added to every pixel, independent of all others; 0 as a rule.
        closed: whether to use `Compressed.pixel_covariance`.
    """

    def __init__(
        self,
        conditional: WeightConditional,
        drawn: Tensor,
        seed: int,
        floor: float = 0.0,
        closed: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.conditional, self.seed, self.floor = conditional, seed, floor
        self.drawn = self._with_floor(drawn, seed)
        self.closed = conditional if closed and isinstance(conditional, Compressed) else None
        if self.closed is not None:
            self._std = self._closed_variance(self.closed, progress or Progress()).sqrt()
        else:
            squares = torch.zeros(drawn.shape[1], dtype=torch.float64, device=drawn.device)
            for part in torch.split(self.drawn, _CHUNK):  # of which float64 takes a copy
                squares += part.double().square().sum(dim=0)
            self._std = (squares / len(drawn)).sqrt()
            self.std_error = self._std / (2 * len(drawn)) ** 0.5
            self.samples = len(drawn)

    @property
    def std(self) -> Tensor:
        """Return the standard deviation of every pixel."""
        return self._std

    def covariance(self, index: Tensor) -> Tensor:
        """Return the covariance of some pixels from all samples at once, or in closed form."""
        if self.closed is not None:
            matrix = self.closed.pixel_covariance(index)
            matrix.diagonal().add_(self.floor)
            return matrix
        part = self.drawn[:, index].double()
        return part.T @ part / len(part)

    def draw(self, count: int, seed: int) -> Tensor:
        """Return the samples that exist already, if they are enough and of the seed; else draw new ones."""
        if seed == self.seed and count <= len(self.drawn):
            return self.drawn[:count]
        return self._with_floor(draw_samples(self.conditional, count, seed), seed)

    def _with_floor(self, drawn: Tensor, seed: int) -> Tensor:
        if not self.floor:
            return drawn
        generator = torch.Generator().manual_seed(seed)
        return drawn + self.floor**0.5 * torch.randn(drawn.shape, generator=generator).to(drawn)

    def _closed_variance(self, closed: Compressed, progress: Progress) -> Tensor:
        pixels = closed.problem.pixels
        parts = []
        with progress.stage("pixel variances", pixels) as stage:
            for index in torch.split(torch.arange(pixels), _CLOSED_CHUNK):
                parts.append(closed.pixel_covariance(index).diagonal())
                stage.update(int(index[-1]) + 1)
        return torch.cat(parts).clamp_min(0) + self.floor
