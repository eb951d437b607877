"""Filtered back-projection."""

from typing import Literal

from pydantic import Field

from ct_dip.classical.fbp import fbp
from ct_dip.config import RunConfig, Section
from ct_dip.data.prediction import Prediction
from ct_dip.method import Job, Method


class FbpConfig(Section):
    """Filtered back-projection."""

    filter: Literal["ram-lak", "shepp-logan", "cosine", "hamming", "hann"] = "hann"
    """Window on the ramp filter; ``ram-lak`` is none."""
    cutoff: float = Field(default=1.0, gt=0, le=1)
    """Frequency above which the filter is zero, as a fraction of the detector's highest one."""


class FbpRun(RunConfig):
    """Settings of method ``fbp``."""

    fbp: FbpConfig = FbpConfig()


class Fbp(Method[FbpRun]):
    """``x = Aᵀ (h ∗ y)``: every view filtered along the detector, and smeared back."""

    name = "fbp"
    title = "filtered back-projection"
    summary = "Filtered back-projection: the classical formula. Fast; noisy and streaky with few views."
    reference = "Kak and Slaney, Principles of Computerized Tomographic Imaging, 1988, chapter 3"
    config = FbpRun
    projects = False

    def run(self, job: Job[FbpRun]) -> Prediction:
        """Filter and back-project."""
        settings = job.config.fbp
        with job.progress.stage("filtered back-projection"):
            image = fbp(job.sinogram, job.scan.geometry, filter=settings.filter, cutoff=settings.cutoff)
        return Prediction(mean=image.cpu().numpy())
