"""Whether error bars can be trusted, given a truth: coverage, standardised residuals, sparsification."""
