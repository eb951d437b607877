"""``python -m ct_dip``."""

import sys

from ct_dip.cli import main

sys.exit(main())
