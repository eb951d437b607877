"""Choose the regime of inference, by the bytes and passes through the network that each one takes."""

import bisect
import math
from typing import NamedTuple

from ct_dip.data.scan import Scan
from ct_dip.posterior.config import InferenceConfig
from ct_dip.posterior.exact_model import inference_bytes
from ct_dip.posterior.infer import has_closed_deviations
from ct_dip.posterior.measurement_noise import CHUNK, DENSE
from ct_dip.posterior.row_blocks import BLOCK
from ct_dip.solvers.lanczos import KRYLOV_BYTES
from ct_dip.tangent.footprint import Footprint

_LEAST_RANK = 64  # that is of any use
_MOST_RANK = 4000
_TV_RANK = 2  # by how much pseudo-measurements of TV make a compression larger, about
_GRAMS = 0.6  # passes that the products of the features of a pixel with all others are worth


class RegimePlan(NamedTuple):
    """The regime of inference, and the bytes and passes of its stages.

    Args:
        regime: exact, compressed or iterative.
        bytes: of every stage.
        passes: through the network, of every stage; of a compression's rank only a guess is known before.
        max_rank: of a compression, that the budget allows.
        features_on_host: whether a compression's features stay in the host's memory, since the device has too
            little.
    """

    regime: str
    bytes: dict[str, int]
    passes: dict[str, int]
    max_rank: int
    features_on_host: bool = False


def plan_regime(
    network: Footprint,
    scan: Scan,
    config: InferenceConfig,
    budget: int,
    device_memory: int | None = None,
) -> RegimePlan:
    """Choose the regime that the configuration asks for, or the cheaper of exact and compressed that fits.

    Whether even that fits is for the caller to see.

    Args:
        network: see `ct_dip.tangent.footprint.footprint`.
        budget: bytes that inference may take; a compression may grow as far as they allow.
        device_memory: bytes that are free on a device with a memory of its own.

    Raises:
        InputError: the regime cannot do what the configuration asks for.
    """
    plan = _pick_regime(network, scan, config, budget)
    if device_memory is not None and plan.regime == "compressed":
        plan = plan._replace(features_on_host=max(plan.bytes.values()) > device_memory)
    config.resolved().model_copy(update={"regime": plan.regime}).checked_regime()
    return plan


def default_compression(config: InferenceConfig, measurements: int, pixels: int) -> float:
    """Choose what a compression may leave out, over the noise's trace in sinograms of images.

    It is made up for in the evidence and, for priors with one scale, in the search for hyperparameters
    (`ct_dip.posterior.compression_check`): these may leave out twice as much. In large problems every digit
    costs hundreds of directions, and moves error bars by a per cent.
    """
    factor = 2 if _makes_up(config) else 1
    return factor * min(3e-3, max(3e-4, 1e-7 * min(measurements, pixels)))


def _one_term(config: InferenceConfig) -> bool:
    """Whether the prior is one matrix times a scale."""
    return config.resolved().objective == "scale" or config.prior != "block"


def _makes_up(config: InferenceConfig) -> bool:
    """Whether the search for hyperparameters knows of signals outside of a basis."""
    return _one_term(config) and config.resolved().objective != "fit"


def _pick_regime(network: Footprint, scan: Scan, config: InferenceConfig, budget: int) -> RegimePlan:
    exact = _plan_exact(network, scan, config)
    if config.regime == "exact":
        return exact
    if config.regime == "iterative":
        return _plan_iterative(network, scan, config)
    compressed = _plan_compressed(network, scan, config, budget)
    cheap = sum(exact.passes.values()) <= sum(compressed.passes.values())
    wanted = cheap or config.integrate == "laplace"  # which only exact inference offers
    fits = max(exact.bytes.values()) <= budget
    return exact if config.regime == "auto" and fits and wanted else compressed


def _plan_exact(network: Footprint, scan: Scan, config: InferenceConfig) -> RegimePlan:
    pixels = math.prod(scan.geometry.domain_shape)
    passes = {"prior covariances": int((1 + _GRAMS) * pixels)}
    return RegimePlan("exact", inference_bytes(network, scan, config), passes, 0)


def _plan_compressed(network: Footprint, scan: Scan, config: InferenceConfig, budget: int) -> RegimePlan:
    pixels, measurements = math.prod(scan.geometry.domain_shape), scan.sinogram.size
    # With TV there are two measurements more of every pixel.
    most = min(measurements if config.tv == "none" else pixels, pixels, _MOST_RANK)
    fitting = bisect.bisect_right(
        range(most + 1), budget, key=lambda rank: _compressed_bytes(network, scan, config, rank)
    )
    max_rank = min(most, max(_LEAST_RANK, fitting - 1))
    guess = min(max_rank, int(12 * min(measurements, pixels) ** 0.5))  # 8 to 15 were seen from 64² to 256²
    closed = has_closed_deviations(config, pixels)
    passes = {
        "compression": 2 * guess * (1 if config.tv == "none" else 1 + _TV_RANK),
        "samples": config.samples,
        **({"pixel variances": pixels} if closed else {}),
        "accuracy check": 150,
        **({"truncation correction": 100} if _makes_up(config) else {}),
    }
    if config.resolved().hyperprior == "tv-predcp":
        passes["variances of differences"] = 2 * pixels
    held = _compressed_bytes(network, scan, config, max(guess, 1))
    return RegimePlan("compressed", dict.fromkeys(passes, held), passes, max_rank)


def _plan_iterative(network: Footprint, scan: Scan, config: InferenceConfig) -> RegimePlan:
    weights = network.parameters
    columns = config.probes + 1 + config.preconditioner_rank
    held = network.jacobian_bytes
    held += columns * (4 * weights + 40 * scan.sinogram.size) + 4 * config.samples * _pixels(scan)
    steps = 60 * (config.probes + 1) * 10
    passes = {"hyperparameters": 2 * steps + 10 * config.preconditioner_rank, "samples": 20 * config.samples}
    return RegimePlan("iterative", dict.fromkeys(passes, held), passes, 0)


def _compressed_bytes(network: Footprint, scan: Scan, config: InferenceConfig, rank: int) -> int:
    """Estimate memory: features and basis, small matrices, measurement noise, samples, J itself."""
    weights, measurements, pixels = network.parameters, scan.sinogram.size, _pixels(scan)
    fewer = min(measurements, pixels)
    if config.tv != "none":  # another basis, of longer columns, beside the first
        rank, measurements = rank * (1 + _TV_RANK), measurements + 2 * pixels
    terms = 1 if _one_term(config) else 60
    by_rank = network.number_bytes * rank * (weights + measurements) + 12 * (terms + 5) * rank**2
    # A block of the features in float64 and as much for vectors of weights, or for closed deviations as many
    # rows of J, Σ J and what they are made from; a block of the basis; and 64 columns in float64, twice.
    parts = BLOCK * ((40 if has_closed_deviations(config, pixels) else 16) * weights + 16 * measurements)
    parts += 1024 * measurements
    noise = 2 * 8 * fewer**2 if fewer <= DENSE else 12 * 4 * CHUNK * measurements + 2 * KRYLOV_BYTES
    samples = 3 * 4 * max(config.samples, 1) * pixels
    return by_rank + parts + noise + samples + network.jacobian_bytes


def _pixels(scan: Scan) -> int:
    return math.prod(scan.geometry.domain_shape)
