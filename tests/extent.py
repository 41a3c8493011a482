"""Decides whether slow tests run, which take minutes: ./dev test --all."""

import os

import pytest

ALL = bool(os.environ.get("PENSTOCK_TEST_ALL"))
LONG = pytest.mark.skipif(not ALL, reason="takes long; ./dev test --all")
