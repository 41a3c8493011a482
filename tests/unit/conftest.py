"""How properties are checked: by examples, never by the clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "unit", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("unit")
