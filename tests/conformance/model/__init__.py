"""The contract told a second time, in plain Python: no SQL, no asyncio, no clock of its own."""

from tests.conformance.model.operating import Operating
from tests.conformance.model.upkeep import Upkeep
from tests.conformance.model.waiting import Waits


class Model(Waits, Operating, Upkeep):
    """Every verb of the contract, over dictionaries and lists."""
