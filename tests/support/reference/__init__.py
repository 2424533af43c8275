"""Checks of what opdefs say by hand: words, shapes, examples."""
