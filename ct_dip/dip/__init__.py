"""Deep image prior: a U-Net whose weights are fitted to one sinogram."""
