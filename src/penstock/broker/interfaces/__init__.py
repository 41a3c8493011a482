"""The parts of the broker interface, one for each group of features."""
