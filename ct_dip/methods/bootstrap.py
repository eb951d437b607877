"""Error bars for any method: what it makes of scans that its own image would give."""

import dataclasses
import math
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator

from ct_dip.arrays import Floats
from ct_dip.classical.tv_strength import strength_at_bound
from ct_dip.config import RunConfig, Section, validate
from ct_dip.data.motions import draw_motion
from ct_dip.data.noise import NoiseModel, PhotonNoise, WhiteNoise, add_photon_noise, add_white_noise
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.method import Job, Method
from ct_dip.methods import find_method
from ct_dip.operators.ray import RayTransform
from ct_dip.progress import Progress
from ct_dip.run_plan import Plan

_SHARED = ("preset", "backend", "kernel", "device", "seed", "threads")  # settings that the other method gets


class BootstrapConfig(Section):
    """The method that gets error bars, and how many scans are simulated for them.

    ``motions`` of the image before: ``exact`` are turns, mirrors and shifts by whole pixels; ``all`` has
    rotations by up to 10°, too, whose interpolation smooths errors; ``none`` is a plain parametric bootstrap.
    """

    of: str = "tv"
    """Method whose error bars are made."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Sections of that method, by name."""
    count: int = Field(default=50, ge=2)
    """Scans that are simulated and reconstructed."""
    motions: Literal["all", "exact", "none"] = "exact"
    """Motions of the image before it is scanned again: turns, mirrors and shifts by whole pixels (``exact``),
    rotations by up to 10°, too, whose interpolation smooths errors (``all``), or none, which is a plain
    parametric bootstrap."""

    @field_validator("of")
    @classmethod
    def _refuse_itself(cls, name: str) -> str:
        if name == "bootstrap":
            raise ValueError("a bootstrap of a bootstrap is not offered; name another method, as tv")
        return name


class BootstrapRun(RunConfig):
    """Settings of method ``bootstrap``."""

    bootstrap: BootstrapConfig = BootstrapConfig()


class Bootstrap(Method[BootstrapRun]):
    """``std² = 1/n Σ_k e_k²``, ``e_k = T_k⁻¹ (x̂(y_k) − T_k x̂)``, ``y_k = A T_k x̂ + ε_k``.

    x̂ is another method and T_k a motion of its image. What A does not see of x̂ it may see of T_k x̂, so that
    errors count that a bootstrap without motions would miss. Errors of the geometry and of the noise model
    are in none of them.
    """

    name = "bootstrap"
    title = "another method with bootstrapped error bars"
    summary = "Another method's image, with error bars from how well it recovers moved copies of that image."
    reference = (
        "Pereyra and Tachella 2024, Equivariant bootstrapping for uncertainty quantification in imaging "
        "inverse problems"
    )
    gives = ("image", "error bars", "samples")
    config = BootstrapRun

    def plan(self, scan: Scan, config: BootstrapRun, start: Plan) -> Plan:
        """Add the plan of the other method, and that of its repetitions.

        Raises:
            InputError: the other method is not known, or its settings are not its.
        """
        method, settings = self._other(config, scan)
        once, count = method.plan(scan, settings, start), config.bootstrap.count
        passes = count * sum(stage.passes for stage in once.stages)
        plan = once.with_stage(self.name, once.bytes - once.held + 8 * count * once.pixels, passes=passes)
        return dataclasses.replace(plan.with_facts(bootstrap_of=method.name), details=once)

    def seconds(
        self, scan: Scan, config: BootstrapRun, plan: Plan, transform: RayTransform
    ) -> dict[str, float]:
        """Multiply those of the other method by the number of scans."""
        method, settings = self._other(config, scan)
        once = method.seconds(scan, settings, plan.details, transform)
        return once | {self.name: config.bootstrap.count * sum(once.values())}

    def run(self, job: Job[BootstrapRun]) -> Prediction:
        """Reconstruct, then move, project, add noise and reconstruct again and again.

        What the other method chose from the data, such as the strength of TV, it keeps.
        """
        told, scan = job.config.bootstrap, job.scan
        method, settings = self._other(job.config, scan)
        inner: Job[Any] = job
        # Without a run folder: every repetition would go on from the checkpoint of the one before.
        inner = dataclasses.replace(inner, config=settings, plan=job.plan.details, run_folder=None)
        prediction = method.run(inner)
        chosen = {section: values for section, values in prediction.settings.items() if values}
        diagnostics = dict(prediction.diagnostics)
        for section, values in chosen.items():
            was_chosen = getattr(getattr(settings, section), "strength", None) == "auto"
            if was_chosen and (end := strength_at_bound(values.get("strength", math.nan))):
                diagnostics["tv_strength_at_bound"] = end
        settings = settings.model_copy(
            update={name: getattr(settings, name).model_copy(update=v) for name, v in chosen.items()}
        )
        variance, stated = scan.variance_or_estimate()
        noise: NoiseModel = WhiteNoise(std=math.sqrt(variance.flat[0]))
        if stated and scan.noise is not None:
            noise = scan.noise.settled(scan.sinogram)
        transform, image = job.transform(), prediction.mean.astype(np.float32)
        rng, errors = np.random.default_rng(job.config.seed), []
        with job.progress.stage(self.name, told.count) as stage:
            for number in range(told.count):
                motion = draw_motion(scan.geometry.domain_shape, told.motions, rng)
                moved = motion.apply(image)
                ideal = transform(torch.as_tensor(moved.copy()).to(job.sinogram)).double().cpu().numpy()
                again = dataclasses.replace(
                    scan, sinogram=_with_noise(ideal, noise, rng), noise=noise, ground_truth=None
                )
                sinogram = torch.as_tensor(again.sinogram.copy()).to(job.sinogram)
                repeated = dataclasses.replace(
                    inner, scan=again, sinogram=sinogram, config=settings, progress=Progress()
                )
                errors.append(motion.undo(method.run(repeated).mean - moved))
                stage.update(number + 1)
        return dataclasses.replace(
            prediction.plain(),
            std=np.sqrt(np.mean(np.square(errors), axis=0)),
            std_error=None,
            samples=(image - np.array(errors)).astype(np.float32),
            patches=(),
            heldout=None,
            diagnostics=diagnostics,
            settings={self.name: {"settings": _merged(told.settings, chosen)}},
        )

    def _other(self, config: BootstrapRun, scan: Scan) -> tuple[Method[Any], RunConfig]:
        """Return the method that is repeated, and its settings."""
        method = find_method(config.bootstrap.of)
        shared = {name: getattr(config, name) for name in _SHARED}
        values = config.bootstrap.settings | shared | {"method": method.name}
        return method, validate(method.config, values).resolved(scan.geometry.domain_shape)


def _with_noise(ideal: Floats, noise: NoiseModel, rng: np.random.Generator) -> Floats:
    if isinstance(noise, PhotonNoise):
        counted, _ = add_photon_noise(ideal, rng, photons=noise.photons)
        return counted + (noise.constant or 0.0) * rng.standard_normal(ideal.shape)
    return add_white_noise(ideal, rng, std=noise.std)[0]


def _merged(told: dict[str, dict[str, Any]], chosen: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return settings by section, with what was chosen on top."""
    return {name: told.get(name, {}) | chosen.get(name, {}) for name in (*told, *chosen)}
