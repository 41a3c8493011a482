"""The promises of a store, written once and kept by every store."""

import pytest

# The simulator of tests/faults imports the model too, perhaps before the state machine does.
pytest.register_assert_rewrite(f"{__name__}.model")
