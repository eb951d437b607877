"""Linear operators: ray transforms and finite differences, one contract (`LinearMap`)."""

from typing import TYPE_CHECKING

from ct_dip.checks import check_type
from ct_dip.errors import BackendError
from ct_dip.geometry import Geometry

if TYPE_CHECKING:
    import torch

    from ct_dip.operators.ray import RayTransform

BACKENDS = ("auto", "sparse", "astra", "odl", "tomosipo")


def ray_transform(
    geometry: Geometry,
    backend: str = "auto",
    *,
    kernel: str = "auto",
    memory_budget: int | str | None = None,
    device: "torch.device | str" = "cpu",
) -> "RayTransform":
    """Make the ray transform ``A`` of a geometry.

    Args:
        geometry: a `ParallelBeam` or `FanBeam`.
        backend: ``sparse`` (assembled matrix), ``astra`` (matrix-free), ``odl``, ``tomosipo`` (GPU),
            or ``auto``: sparse where the matrix fits the memory budget, astra otherwise.
        kernel: how a ray weighs the pixels that it meets: ``auto``, ``line``, ``linear`` (parallel beam
            only) or ``strip``; see `ct_dip.operators.assembly.choose_kernel`. tomosipo has its own.
        memory_budget: bytes or text such as ``"4G"``, for ``sparse`` and ``auto``.
        device: of the sparse matrix; the other backends follow their input.

    Example:
        >>> from ct_dip.geometry import ParallelBeam, Volume
        >>> from ct_dip.scanners import view_angles
        >>> import torch
        >>> volume = Volume(shape=(28, 28))
        >>> A = ray_transform(ParallelBeam(volume=volume, angles=view_angles(20), detectors=41))
        >>> A(torch.ones(28, 28)).shape
        torch.Size([20, 41])
    """
    check_type(geometry, Geometry, "geometry", "a ParallelBeam or FanBeam, as scan.geometry")
    if backend not in BACKENDS:
        raise BackendError(f"backend {backend!r} is not known; choose one of {', '.join(BACKENDS)}")
    if backend == "tomosipo":
        from ct_dip.operators.tomosipo import TomosipoRayTransform

        if kernel != "auto":
            raise BackendError(f"backend 'tomosipo' has one kernel of its own; drop kernel={kernel!r}")
        return TomosipoRayTransform(geometry)
    if backend == "odl":
        from ct_dip.operators.odl import OdlGeometryRayTransform

        return OdlGeometryRayTransform(geometry, kernel=kernel)
    if backend == "auto":
        from ct_dip.memory import memory_budget as budget_bytes
        from ct_dip.operators.sparse import estimate_peak_bytes

        fits = estimate_peak_bytes(geometry, kernel) <= budget_bytes(memory_budget)
        backend = "sparse" if fits else "astra"
    if backend == "astra":
        from ct_dip.operators.astra import AstraRayTransform

        return AstraRayTransform(geometry, kernel=kernel)
    from ct_dip.operators.sparse import SparseRayTransform

    return SparseRayTransform(geometry, kernel=kernel, memory_budget=memory_budget, device=device)
