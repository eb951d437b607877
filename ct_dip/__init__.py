"""ct_dip: Bayesian computed-tomography reconstruction.

``import ct_dip as ct`` is cheap: every public name is loaded when it is first used, and with it torch, ASTRA
or matplotlib. The public names are those that ``__init__.pyi`` imports; type checkers read the same file.
"""

import lazy_loader

from ct_dip import memory as memory  # ct_dip.memory.keep_freed() works after import ct_dip

__version__ = "0.2.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
