"""The implementation of the classes of ops, for eager execution and for graphs."""
