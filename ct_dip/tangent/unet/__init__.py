"""Fast products with the Jacobian of a U-Net, without autograd."""
