"""Choose the class that computes the Jacobian of a network."""

from torch import Tensor, nn

from ct_dip.dip.unet import UNet
from ct_dip.tangent.jacobian import Jacobian
from ct_dip.tangent.unet.jacobian import UNetJacobian


def linearise(network: nn.Module, network_input: Tensor, *, chunk_bytes: int | None = None) -> Jacobian:
    """Return the Jacobian of a network at its weights, by the fast products if it is a `UNet`."""
    if type(network) is UNet:  # a subclass may compute something else
        return UNetJacobian(network, network_input, chunk_bytes=chunk_bytes)
    return Jacobian(network, network_input, chunk_bytes=chunk_bytes)
