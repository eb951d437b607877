"""What a sinogram says of its own geometry and noise, and repairs of what is wrong with it."""
