"""Every error that ct_dip raises on purpose, under one base class.

An error is written for the person who reads it: what was given, what was expected, what to do.
"""


class CtDipError(Exception):
    """Base class. The command line turns it into one line and an exit code."""

    exit_code = 1


class InterruptedRunError(CtDipError):
    """The user stopped a run; the message says how it goes on. Exit code 130."""

    exit_code = 130


class InputError(CtDipError):
    """Something the user gave cannot be used; exit code 2."""

    exit_code = 2


class GeometryError(InputError):
    """An acquisition geometry that makes no sense or is not supported."""


class ScanError(InputError):
    """A scan whose parts do not fit together, or a scan file that cannot be read."""


class ResultError(InputError):
    """A result file that cannot be read."""


class MissingPartError(InputError):
    """A result that does not hold what was asked of it."""


class OutputError(InputError):
    """A file or folder that cannot be written."""


class BackendError(InputError):
    """A ray transform that is unknown, not installed, or not able to do what was asked."""


class MemoryBudgetError(InputError):
    """A job that would not fit into the memory budget; the message gives the numbers."""
