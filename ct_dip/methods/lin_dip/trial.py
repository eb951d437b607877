"""A trial without a fifth of the views: which image predicts them, and how wide error bars must be."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ct_dip.arrays import Bools, Floats
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.data.scores import HeldoutScores
from ct_dip.dip.ensemble import DipFit
from ct_dip.evaluation.heldout import heldout_scores, heldout_views, predict_views, predicts_better
from ct_dip.evaluation.widening import fit_widening
from ct_dip.method import Job
from ct_dip.methods.dip import fit_batch
from ct_dip.methods.lin_dip.config import LinDipRun
from ct_dip.methods.lin_dip.inference import infer, total_variation
from ct_dip.operators.ray import RayTransform
from ct_dip.posterior.posterior import Posterior
from ct_dip.progress import Progress

# A view that nobody saw is harder to predict than a typical pixel: of the widening that views ask for, this
# much is given. Chosen on 18 scans in a study before this code; see experiments/README.md.
_EASIER = 0.74
TRIAL = "held-out views"  # name of the stage
_FEWEST_VIEWS = 5  # of which one is held out
_FEWEST_SAMPLES = 100  # that the spread of a held-out line integral is made from


class Trial(NamedTuple):
    """What views say that were held out."""

    image: str  # to show, as ``inference.image`` has it
    widening: float  # of the posterior's covariance
    before: HeldoutScores  # how they were predicted without that
    after: HeldoutScores


def hold_out(jobs: Sequence[Job[LinDipRun]], whole: Sequence[DipFit]) -> Sequence[Trial | None]:
    """Reconstruct without a fifth of the views, and hold these against it; ``None`` if that is not wanted.

    Args:
        jobs: whose networks are fitted as one batch; see `ct_dip.methods.dip.fit_batch`.
        whole: their fits to all views, of which an unfinished one is not shown.
    """
    first = jobs[0]
    if not holds_out(first.scan, first.config, first.given):
        why = "no views were held out to widen them"
        if first.config.inference.calibrate == "views" and "fit" not in first.given:
            why = f"there are fewer than {_FEWEST_VIEWS} views to hold some out"
        first.progress.note(f"error bars are those of the model alone, often too narrow: {why}")
        return [None] * len(jobs)
    unseen = heldout_views(first.scan.geometry)
    jobs = [_show_tv_if_unfinished(job, fit) for job, fit in zip(jobs, whole, strict=True)]
    with first.progress.stage(TRIAL):
        parts = [_without_views(job, unseen) for job in jobs]
        transform = parts[0].transform()
        fits = fit_batch(parts, transform)
        return [
            _judge(job, part, transform, fit, unseen)
            for job, part, (fit, _) in zip(jobs, parts, fits, strict=True)
        ]


def _show_tv_if_unfinished(job: Job[LinDipRun], fit: DipFit) -> Job[LinDipRun]:
    """Return the job so that total variation is shown, if the network did not come near its misfit."""
    if job.config.inference.image != "auto" or not fit.unfinished:
        return job
    job.progress.note(
        f"the image of total variation is shown: its misfit is {fit.tv_misfit:.2g}, the network's "
        f"{fit.misfit:.2g}"
    )
    inference = job.config.inference.model_copy(update={"image": "tv"})
    return dataclasses.replace(job, config=job.config.model_copy(update={"inference": inference}))


def _judge(
    job: Job[LinDipRun], part: Job[LinDipRun], transform: RayTransform, fit: DipFit, unseen: Bools
) -> Trial:
    """Predict the unseen views of a job from the fit to its other part."""
    settings = job.config.inference
    posterior = infer(part, fit, transform)
    images = {settings.image: posterior.mean, "tv": total_variation(part, transform, fit)}
    residuals = {
        name: predict_views(_as_prediction(posterior, image, part), job.scan, unseen)
        for name, image in images.items()
    }
    best = settings.image
    if best == "auto" and predicts_better(residuals["tv"], residuals["auto"]):
        best = "tv"
    asked = fit_widening([residuals[best]])
    widening = max(min(asked, 1.0), _EASIER * asked)
    before, after = (heldout_scores([residuals[best].widened(a)]) for a in (1.0, widening))
    return Trial(best, widening, before, after)


def holds_out(scan: Scan, config: LinDipRun, given: Mapping[str, Any]) -> bool:
    """Whether views are held out: if that is wanted, possible, and the network is not fitted already."""
    enough = len(np.unique(scan.geometry.angles)) >= _FEWEST_VIEWS
    return config.inference.calibrate == "views" and enough and not given.keys() & {"fit", "posterior"}


def _without_views(job: Job[LinDipRun], unseen: Bools) -> Job[LinDipRun]:
    """Return the job of the other views: same network, prior and regime, samples instead of a map."""
    config, regime = job.config, job.plan.details.regime
    samples = max(_FEWEST_SAMPLES, config.inference.samples)
    update = {"samples": samples, "patch": 0, "regime": regime, "deviations": "samples"}
    image = "dip" if config.inference.image == "tv" else config.inference.image
    inference = config.inference.model_copy(update=update | {"image": image})
    scan = dataclasses.replace(job.scan.select_views(~unseen), ground_truth=None)
    return dataclasses.replace(
        job,
        scan=scan,
        sinogram=job.sinogram[torch.as_tensor(~unseen, device=job.sinogram.device)],
        config=config.model_copy(update={"inference": inference}),
        progress=Progress(),
        run_folder=None if job.run_folder is None else job.run_folder / TRIAL,
    )


def _as_prediction(posterior: Posterior, image: Floats, job: Job[LinDipRun]) -> Prediction:
    """Samples of the posterior around an image."""
    deviations = posterior.sample(job.config.inference.samples, job.config.seed) - posterior.mean
    noise = {"sigma_y": posterior.noise_std, "sigma_y_stated": posterior.stated_noise_std}
    return Prediction(mean=image, samples=image + deviations, diagnostics=noise)
