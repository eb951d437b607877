"""The sparse ray transform against ASTRA's CPU projector through ``astra.OpTomo``.

Both compute the same numbers with the same weights; seconds are per vector. The kernel is ``line``, and
at the middle size also ``linear``, our default for parallel beams.
"""

import time
from collections.abc import Iterator
from functools import partial

import astra
import torch

from benchmarks.measure import Row, faster, interleaved, plain
from ct_dip.geometry import Volume
from ct_dip.operators.assembly import assemble, make_projector
from ct_dip.operators.sparse import SparseRayTransform, estimate_bytes
from ct_dip.scanners import scanner

CASES = ((128, "line"), (256, "line"), (256, "linear"), (362, "line"))
VIEWS = 60
BATCH = 16


def run() -> Iterator[Row]:
    for size, kernel in CASES:
        geometry = scanner(Volume(shape=(size, size)), views=VIEWS)
        case = f"{size}², {VIEWS} × {geometry.detectors}, {kernel}"
        start = time.perf_counter()
        assemble(geometry, kernel)
        yield plain("operators", f"{case}, assembly", time.perf_counter() - start, "s")

        ours = SparseRayTransform(geometry, kernel=kernel)
        yield plain("operators", f"{case}, matrices", ours.nbytes / 2**20, "MiB")
        estimate = estimate_bytes(geometry, kernel) / 2**20
        yield plain("operators", f"{case}, matrices as estimated", estimate, "MiB")
        projector = make_projector(geometry, kernel)
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
                partial(reference, single), partial(transform, batch[0]), partial(transform, batch)
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
