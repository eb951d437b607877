"""The search for hyperparameters as a stage of a run: found in its file, or made and kept there."""

from pathlib import Path

import torch
from torch import Tensor

from ct_dip.checkpoint import stage_result
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
    """As `fit_evidence`; a file in the run folder with the same digest is used in its place, bit for bit.

    Args:
        digest: of everything that the search depends on.
    """
    state = stage_result(
        folder,
        EVIDENCE,
        digest,
        lambda: _pack(fit_evidence(model, starts=starts, seed=seed, progress=progress)),
    )
    return _unpack(state, model.names)


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


def _unpack(state: dict[str, Tensor], names: tuple[str, ...]) -> EvidenceFit:
    objective, evidence, jitter = state["numbers"].tolist()
    return EvidenceFit(
        theta=state["theta"],
        names=names,
        objective=objective,
        evidence=evidence,
        converged=bool(state["converged"]),
        at_bound=tuple(name for name, at in zip(names, state["at_bound"].tolist(), strict=True) if at),
        found=tuple(state["found"].tolist()),
        evaluations=int(state["evaluations"]),
        trace=state["trace"].numpy(),
        jitter=jitter,
    )
