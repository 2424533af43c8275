"""Makes the examples importable, as they are when one of them runs."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
