"""The tests of programs with TPU embeddings; they need the native library."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
from opwright_runtime import native

if not native.LIBRARY.exists():
    raise pytest.UsageError("tests/embedding need the native library: `make native`")
