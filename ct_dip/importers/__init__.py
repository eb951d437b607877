"""Measured scans from files of others, one format per file, each with one function that returns a `Scan`.

=============  =========================  ==================================================
format         module                     what
=============  =========================  ==================================================
htc2022        `importers.htc2022`        Helsinki Tomography Challenge 2022, MATLAB
fips-walnut    `importers.fips_walnut`    walnut of the Finnish Inverse Problems Society, MATLAB
data-exchange  `importers.data_exchange`  Data Exchange HDF5: counts, flats, darks
numpy          `importers.numpy_file`     a sinogram of your own, NPZ
=============  =========================  ==================================================

A reader returns all views. The grid, where nothing is said, is as wide as the field of view, and a pixel as
wide as the distance of rays at the rotation axis (`importers.grid`). No pickle is ever loaded.
"""
