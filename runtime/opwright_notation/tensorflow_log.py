"""Hides TensorFlow's log while a command imports TensorFlow.

The commands of the runtime and of the generator share this module.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

#: Lines of the log below errors.
_LOG = re.compile(rb"WARNING: All log messages before absl::Init|[IW]\d{4} \d\d:\d\d:")
_LEVEL = "TF_CPP_MIN_LOG_LEVEL"
#: The levels at which the user sees warnings.
_WITH_WARNINGS = ("0", "1")


@contextmanager
def hidden_log() -> Iterator[None]:
    """Keeps TensorFlow's log from stderr; other lines come at the end.

    It sets TF_CPP_MIN_LOG_LEVEL to 3, and leaves it set, unless the user has set it.
    TensorFlow's libraries write some lines at any level. This function drops those, but
    not at the levels 0 and 1.
    """
    if os.environ.setdefault(_LEVEL, "3") in _WITH_WARNINGS:
        yield
        return
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as captured:
        os.dup2(captured.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr, 2)
            os.close(stderr)
            captured.seek(0)
            kept = (line for line in captured if not _LOG.match(line))
            os.write(2, b"".join(kept))
