"""Tools for testing applications: a simulation in virtual time, and store faults."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.testing.faults import Faults
    from penstock.testing.simulation import ManualClock, Simulation
    from penstock.testing.sync import SyncSimulation

__all__ = ["Faults", "ManualClock", "Simulation", "SyncSimulation"]

HOMES = {
    "Faults": "faults",
    "ManualClock": "simulation",
    "Simulation": "simulation",
    "SyncSimulation": "sync",
}

# Hidden from type checkers, which would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports a public name when it is first used, so that the pytest plugin loads fast."""
        if name not in HOMES:
            raise AttributeError(f"module 'penstock.testing' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{HOMES[name]}"), name)
        return value
