"""Empty: _tensorflow.pyi beside it is for type checkers alone."""
