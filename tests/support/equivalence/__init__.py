"""Comparing opwright's ops with TensorFlow's own."""
