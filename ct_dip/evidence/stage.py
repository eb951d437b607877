"""The search for hyperparameters as a stage of a run: found in its file, or made and kept there."""

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from ct_dip.checkpoint import stage_object, take
from ct_dip.evidence.fit import EvidenceFit, fit_evidence
from ct_dip.evidence.model import EvidenceModel
from ct_dip.progress import Progress

EVIDENCE = "evidence.npz"


def evidence_stage(
    model: EvidenceModel,
    folder: Path | None,
    digest: str,
    *,
    starts: int,
    seed: int,
    progress: Progress,
) -> EvidenceFit:
    """Call `fit_evidence`, or read its result from the run folder where one has the same digest.

    Args:
        digest: of everything that the search depends on.
    """
    return stage_object(
        folder,
        EVIDENCE,
        digest,
        compute=lambda: fit_evidence(model, starts=starts, seed=seed, progress=progress),
        to_state=_pack,
        from_state=lambda state: _unpack(state, model.names),
    )


def _pack(fit: EvidenceFit) -> dict[str, Tensor]:
    numbers = [fit.objective, fit.evidence, fit.jitter]
    return {
        "theta": fit.theta,
        "numbers": torch.tensor(numbers, dtype=torch.float64),
        "found": torch.tensor(fit.found, dtype=torch.float64),
        "trace": torch.as_tensor(fit.trace, dtype=torch.float64),
        "at_bound": torch.tensor([name in fit.at_bound for name in fit.names]),
        "converged": torch.tensor(fit.converged),
        "evaluations": torch.tensor(fit.evaluations),
    }


def _unpack(state: Mapping[str, Tensor], names: tuple[str, ...]) -> EvidenceFit:
    objective, evidence, jitter = take(state, "numbers", (3,), torch.float64).tolist()
    at_bound = take(state, "at_bound", (len(names),), torch.bool).tolist()
    return EvidenceFit(
        theta=take(state, "theta", (len(names),), torch.float64),
        names=names,
        objective=objective,
        evidence=evidence,
        converged=bool(take(state, "converged", (), torch.bool)),
        at_bound=tuple(name for name, at in zip(names, at_bound, strict=True) if at),
        found=tuple(take(state, "found", (None,), torch.float64, finite=False).tolist()),
        evaluations=int(take(state, "evaluations", (), torch.int64)),
        trace=take(state, "trace", (None,), torch.float64, finite=False).numpy(),
        jitter=jitter,
    )
