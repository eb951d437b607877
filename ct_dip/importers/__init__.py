"""Measured scans from files of others.

`formats` has one file per format, which says what a file holds (`recording.Recording`); everything after that
is shared: `preprocess` makes line integrals of readings, `build` adds the geometry and the grid, `run` has
`import_scan`. The grid, where nothing is said, is as wide as the field of view, and a pixel as wide as the
distance of rays at the rotation axis (`grid`). No pickle is ever loaded.
"""
