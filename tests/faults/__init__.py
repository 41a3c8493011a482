"""Storms, and the tests of what judges them."""
