"""The sparse ray transform against ASTRA's CPU projector through ``astra.OpTomo``.

Both compute the same numbers with the same weights (kernel ``line``); seconds are per vector.
"""

import time
from collections.abc import Iterator

import astra
import torch

from benchmarks.measure import Row, faster, interleaved, plain
from ct_dip.geometry import Volume, scanner
from ct_dip.operators.assembly import assemble, make_projector
from ct_dip.operators.sparse import SparseRayTransform, estimate_bytes

SIZES = (128, 256, 362)
VIEWS = 60
BATCH = 16


def run() -> Iterator[Row]:
    for size in SIZES:
        geometry = scanner(Volume(shape=(size, size)), views=VIEWS)
        case = f"{size}², {VIEWS} × {geometry.detectors}"
        start = time.perf_counter()
        assemble(geometry, "line")
        yield plain("operators", f"{case}, assembly", time.perf_counter() - start, "s")

        ours = SparseRayTransform(geometry)
        yield plain("operators", f"{case}, matrices", ours.nbytes / 2**20, "MiB")
        estimate = estimate_bytes(geometry) / 2**20
        yield plain("operators", f"{case}, matrices as estimated", estimate, "MiB")
        projector = make_projector(geometry, "line")
        theirs = astra.OpTomo(projector)

        generator = torch.Generator().manual_seed(0)
        images = torch.rand(BATCH, size, size, generator=generator)
        sinograms = torch.rand(BATCH, *geometry.range_shape, generator=generator)
        directions = (
            ("forward", ours, theirs.FP, images),
            ("adjoint", ours.T, theirs.BP, sinograms),
        )
        for name, transform, reference, batch in directions:
            single = batch[0].numpy()
            reference_seconds, one, many = interleaved(
                lambda reference=reference, single=single: reference(single),
                lambda transform=transform, batch=batch: transform(batch[0]),
                lambda transform=transform, batch=batch: transform(batch),
            )
            yield faster("operators", f"{case}, {name}, one", "astra.OpTomo", reference_seconds, one)
            yield faster(
                "operators",
                f"{case}, {name}, batch of {BATCH}",
                "astra.OpTomo",
                reference_seconds,
                many / BATCH,
            )
        astra.projector.delete(projector)
