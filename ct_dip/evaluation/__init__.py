"""Whether an image and its error bars can be trusted: coverage, residuals, sparsification, regions."""
