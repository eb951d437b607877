"""Geometries of other libraries, to and from ours: ``to_astra``, ``from_odl``, …

Only the library that is asked for is imported.
"""
