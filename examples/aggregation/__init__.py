"""The parts of the gradient aggregation example."""
