"""Array types. Shapes stand in comments and docstrings, (rows, columns) or (views, detectors)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
