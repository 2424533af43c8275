"""Generates typed Python classes from YAML op definitions."""
