"""``python -m ct_dip``."""

from ct_dip.cli import console_script

console_script()
