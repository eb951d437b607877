"""The network, linear in its weights around the fit: products with J, and its feature statistics."""
