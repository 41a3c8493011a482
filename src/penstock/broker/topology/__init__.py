"""Topologies: what a file declares, compared with the store and applied in one step."""
