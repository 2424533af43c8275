"""Ends a command whose reader, such as `head`, has read enough.

The commands of the runtime and of the generator share this module.
"""

from __future__ import annotations

import os
import sys


def drop_output() -> None:
    """Drops what stdout still has: at its end, Python would write it and fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
