"""A store and the model, driven side by side by every verb in any order."""

import pytest

# So that a disagreement shows what each side said.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{name}"
        for name in (
            "world",
            "producers",
            "consumers",
            "operators",
            "keepers",
            "waiters",
            "governors",
        )
    )
)
