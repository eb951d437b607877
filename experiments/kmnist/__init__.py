"""The table of the linearised deep-image-prior papers, for our methods; see README.md."""
