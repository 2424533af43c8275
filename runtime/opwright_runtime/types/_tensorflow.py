"""This module is empty. Its stub _tensorflow.pyi is for type checkers only."""
