"""Keeps TensorFlow's start-up messages out of the tests' output."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
