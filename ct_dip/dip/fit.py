"""Fit networks to sinograms: one, or many of the same geometry at once."""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from ct_dip import memory
from ct_dip.checkpoint import BITS, load_checkpoint, save_checkpoint, take
from ct_dip.config import Strength
from ct_dip.data.scan import Scan
from ct_dip.dip.config import DipConfig
from ct_dip.dip.ensemble import DipFit, Ensemble
from ct_dip.dip.own_network import check_network, network_digest, refuse_unet_settings
from ct_dip.dip.presets import resolve, unet_shape
from ct_dip.dip.start import make_starts
from ct_dip.dip.unet import UNet
from ct_dip.errors import InputError
from ct_dip.operators import ray_transform
from ct_dip.operators.linear_map import LinearMap
from ct_dip.operators.ray import transform_digest
from ct_dip.progress import Progress
from ct_dip.progress_bars import default_progress

CHECKPOINT = "dip.npz"
Resume = Literal["exact", "compatible"]
_CHECKPOINT_SECONDS = 5.0
_TRIM_SECONDS = 2.0
_FIXED_BYTES = 64 * 2**20  # what torch's convolutions take for themselves, as measured


def fit_dip(
    scan: Scan,
    config: DipConfig | None = None,
    *,
    network: nn.Module | None = None,
    seed: int = 0,
    transform: LinearMap | None = None,
    progress: Progress | None = None,
    run_folder: str | Path | None = None,
    resume: Resume = "exact",
    device: torch.device | str = "cpu",
) -> DipFit:
    """Fit a deep image prior to one scan.

    Args:
        network: in place of the U-Net, (1, 1, rows, columns) → the same, with values of order 1. A copy is
            fitted, from its weights on; see `ct_dip.dip.own_network`.
        seed: of a U-Net's initial weights, of a noise input, and of the jitter.
        transform: the scan's ray transform, if it is at hand.
        run_folder: where checkpoints go. The same call goes on from there after an interruption, on the CPU
            to the same bits.
        resume: ``compatible`` also continues a checkpoint of another device, number of threads or version of
            torch; the last bits may then differ.
    """
    return fit_many(
        [scan],
        config,
        network=network,
        seeds=[seed],
        transform=transform,
        progress=progress,
        run_folder=run_folder,
        resume=resume,
        device=device,
    )[0]


def fit_many(
    scans: Sequence[Scan],
    config: DipConfig | None = None,
    *,
    network: nn.Module | None = None,
    seeds: Sequence[int] | None = None,
    transform: LinearMap | None = None,
    progress: Progress | None = None,
    run_folder: str | Path | None = None,
    resume: Resume = "exact",
    device: torch.device | str = "cpu",
    kind: Callable[..., Ensemble] = Ensemble,
    strengths: Sequence[Strength] | None = None,
) -> list[DipFit]:
    """Fit N networks together, one per scan of one geometry, or of one scan N times with seeds or strengths.

    The networks do not influence each other; each stops by its own data. Small images are limited by the
    overhead of every operation, which is paid once for all of them.

    Args:
        network: see `fit_dip`; all fits start from its weights.
        kind: makes the ensemble: a subclass, which may return other fits than one per scan.
        strengths: of TV, one per scan, in place of the configuration's.
    """
    if not scans:
        raise InputError("no scans were given")
    if len({scan.geometry for scan in scans}) > 1:
        raise InputError("scans that are fitted together must have the same geometry; fit them one by one")
    geometry = scans[0].geometry
    settings = resolve(config or DipConfig(), geometry.domain_shape)
    seeds = list(range(len(scans))) if seeds is None else list(seeds)
    if len(seeds) != len(scans):
        raise InputError(f"{len(seeds)} seeds were given for {len(scans)} scans")
    if strengths is not None and len(strengths) != len(scans):
        raise InputError(f"{len(strengths)} strengths were given for {len(scans)} scans")
    if network is not None:
        check_network(network, geometry.domain_shape)
        refuse_unet_settings(settings, geometry.domain_shape)
    if transform is None:
        transform = ray_transform(geometry, device=device)
    device = torch.device(device)
    starts = None if strengths is None else make_starts(scans, settings, transform, device, strengths)
    ensemble = kind(scans, settings, seeds, transform, device, network, starts)
    digest = _digest(
        scans,
        settings,
        seeds,
        transform_digest(transform, device),
        device,
        **({} if network is None else {"network": network_digest(network)}),
        **({} if strengths is None else {"strengths": " ".join(map(str, strengths))}),
        **({"variant": ensemble.variant} if ensemble.variant else {}),
    )
    path = None if run_folder is None else Path(run_folder) / CHECKPOINT
    progress = progress or default_progress()
    if path is not None:
        tolerate = BITS if resume == "compatible" else ()
        state = load_checkpoint(path, digest, tolerate=tolerate, note=progress.note)
        if state is not None:
            _restore(ensemble, state, path)
    before = ensemble.adam.steps
    with progress.stage("deep image prior", ensemble.schedule.longest) as stage:
        saved = trimmed = time.monotonic()
        while not ensemble.finished:
            figures = ensemble.step()
            stage.update(ensemble.adam.steps, **figures)
            if time.monotonic() - trimmed > _TRIM_SECONDS:
                memory.give_back()  # what steps leave in the heap: at 256² that grew to a gigabyte
                trimmed = time.monotonic()
            if path is not None and time.monotonic() - saved > _CHECKPOINT_SECONDS:
                save_checkpoint(path, digest, ensemble.state())
                saved = time.monotonic()
    if path is not None and ensemble.adam.steps > before:  # a fit that was done is on disk as it is
        save_checkpoint(path, digest, ensemble.state())
    return ensemble.fits()


def _restore(ensemble: Ensemble, state: dict[str, Tensor], path: Path) -> None:
    """Go on from a checkpoint, if it holds what a fit of these networks has."""
    fresh = ensemble.state()  # which has no traces yet
    try:
        for name, tensor in fresh.items():
            take(state, name, tuple(tensor.shape), tensor.dtype, finite=not name.startswith("rule."))
        steps = int(state["steps"])
        if not 0 <= steps <= ensemble.schedule.longest:
            raise InputError(f"it has {steps} steps")
        needed = {"trace.loss", "trace.misfit"} if steps else set()
        for name in sorted((state.keys() - fresh.keys()) | needed):
            members = len(ensemble.scans) if name != "trace.psnr" else None
            take(state, name, (steps, members), torch.float32, finite=False)
        ensemble.restore(state)
    except (InputError, RuntimeError) as error:  # torch's generator does not take every state
        raise InputError(f"checkpoint {path} is damaged ({error}); remove it to start again") from error


def fit_bytes(
    config: DipConfig, shape: tuple[int, int], members: int = 1, network: nn.Module | None = None
) -> int:
    """Estimate the memory of a fit: features with their gradients, and seven copies of the weights.

    A scale of c channels keeps about sixteen maps of c channels at its resolution for the backward pass
    and during it: in- and outputs of four convolutions, activations, the interpolated map, gradients. They
    come and go in many sizes, so that the heap takes about three times that: a process grew by 96, 150 and
    500 MiB at 64², 128² and 256², where this says 99, 195 and 577. Of another network the outputs of its
    layers are counted, about half of those maps.
    """
    if network is None:
        network = UNet(unet_shape(resolve(config, shape)))
        pixels = math.prod(shape)
        features = sum(3 * 16 * c * pixels / 4**scale for scale, c in enumerate(network.shape.channels))
    else:
        features = 6 * check_network(network, shape).all
    weights = sum(p.numel() for p in network.parameters())
    return int(4 * members * (features + 7 * weights)) + _FIXED_BYTES


def _digest(
    scans: Sequence[Scan],
    config: DipConfig,
    seeds: Sequence[int],
    transform: str,
    device: torch.device,
    **more: str,
) -> str:
    """Collect everything that the bits of a fit depend on, as a JSON object."""
    parts = {
        "scan": " ".join(scan.digest for scan in scans),
        "ray transform": transform,
        "dip": config.model_dump(mode="json"),
        "seed": list(seeds),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": str(device),
    }
    return json.dumps(parts | more, sort_keys=True)
