"""The storm: real processes on one store, killed and stopped, and then held to every promise."""
