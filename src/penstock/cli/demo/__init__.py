"""The steps of `penstock demo`."""
