"""The interface of a method: its settings, its plan, and its run from a scan to a `Prediction`.

A method is one class in one file. Those of this package are in ``ct_dip/methods/``; another package adds its
own by an entry point of the group ``ct_dip.methods``::

    [project.entry-points."ct_dip.methods"]
    mine = "my_package.mine:Mine"
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import torch
from torch import Tensor

from ct_dip.config import RunConfig
from ct_dip.data.noise import PhotonNoise
from ct_dip.data.prediction import Prediction
from ct_dip.data.scan import Scan
from ct_dip.operators import ray_transform
from ct_dip.operators.ray import RayTransform
from ct_dip.progress import Progress
from ct_dip.run_plan import Plan

Config = TypeVar("Config", bound=RunConfig)


@dataclass(frozen=True, kw_only=True)
class Job(Generic[Config]):
    """The input of a method's run.

    Args:
        sinogram: of the scan, on the device that the run works on.
        budget: bytes that the run may take; ``plan`` what it will take.
        budget_minutes: that the user allows, for methods that can be cut short.
        run_folder: where stages are kept while they are made; ``resume`` how exactly they must fit.
        given: objects of Python that the method accepts, by name.
    """

    scan: Scan
    sinogram: Tensor
    config: Config
    progress: Progress
    budget: int
    plan: Plan
    budget_minutes: float | None = None
    run_folder: Path | None = None
    resume: Literal["exact", "compatible"] = "exact"
    given: Mapping[str, Any] = field(default_factory=dict)

    def transform(self) -> RayTransform:
        """The scan's ray transform, on the device."""
        with self.progress.stage("ray transform"):
            return ray_transform(
                self.scan.geometry,
                self.config.backend,
                kernel=self.config.kernel,
                memory_budget=self.budget,
                device=self.sinogram.device,
            )

    def variance(self) -> tuple[Tensor, dict[str, Any]]:
        """Variance of the measurements, (views, detectors), and diagnostics that say where it is from."""
        variance, stated = self.scan.variance_or_estimate()
        if stated:
            return torch.as_tensor(variance), {"noise_estimated": False} | self._noise_constant()
        std = math.sqrt(variance.flat[0])
        self.progress.note(f"the scan states no noise; estimated a standard deviation of {std:.3g}")
        return torch.as_tensor(variance), {"noise_estimated": True, "noise_std": std}

    def _noise_constant(self) -> dict[str, float]:
        """Return the error that the data show beside photon noise, if there is any."""
        noise, scan = self.scan.noise, self.scan
        constant = noise.settled(scan.sinogram).constant if isinstance(noise, PhotonNoise) else None
        return {"noise_constant": constant} if constant else {}


class Method(ABC, Generic[Config]):
    """A way to reconstruct a scan. It has no state: everything that decides a run is in the configuration.

    Attributes:
        name: on the command line.
        title: what a page calls it.
        summary: what it does, for readers who do not know it: one or two sentences.
        reference: where its equation is from.
        gives: what its predictions hold: image, error bars, samples.
        config: its settings: `RunConfig` with a section, or a few.
        accepts: objects of Python that a run can be given, by name, with what they are.
        projects: whether it uses the ray transform, so that ``backend`` and ``kernel`` have an effect.
        keeps_stages: whether a run folder has an effect.
        limits_time: whether a time budget has an effect.
        uses_offset_error: whether its error bars know of the error of the scan's detector offset.
        varies_in_batch: settings, as ``dip.strength``, that may differ between jobs of `run_many`.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    reference: ClassVar[str] = ""
    gives: ClassVar[tuple[str, ...]] = ("image",)
    config: type[Config]
    accepts: ClassVar[dict[str, str]] = {}
    projects: ClassVar[bool] = True
    keeps_stages: ClassVar[bool] = False
    limits_time: ClassVar[bool] = False
    uses_offset_error: ClassVar[bool] = False
    varies_in_batch: ClassVar[tuple[str, ...]] = ()

    def plan(self, scan: Scan, config: Config, start: Plan) -> Plan:
        """Add the method's stages to the plan of a run.

        Args:
            start: with the stage of the ray transform, and what every stage holds.
        """
        return start.with_stage(self.name)

    def seconds(self, scan: Scan, config: Config, plan: Plan, transform: RayTransform) -> dict[str, float]:
        """Time a moment of every kind of work, and return the seconds that stages take at most, by name."""
        return {}

    @abstractmethod
    def run(self, job: Job[Config]) -> Prediction:
        """Reconstruct a scan."""

    def batch_size(self, scan: Scan, config: Config, plan: Plan) -> int:
        """Return how many jobs like this one `run_many` takes at once, within the plan's budget."""
        return 1

    def run_many(self, jobs: Sequence[Job[Config]]) -> Iterable[Prediction]:
        """Run jobs of one geometry that all state their noise or all do not, and likewise for a truth.

        Their configurations are the same but for `varies_in_batch`; they have no run folders or objects.
        Predictions may be large until they are scored and made plain, so that they come one by one.
        """
        return map(self.run, jobs)
