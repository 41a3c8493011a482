"""Tests of the benchmark against servers."""
