"""The contract told a second time, in plain Python: no SQL, no asyncio, no clock of its own."""

from tests.conformance.model.consuming import Consuming
from tests.conformance.model.operating import Operating
from tests.conformance.model.upkeep import Upkeep


class Model(Consuming, Operating, Upkeep):
    """Every verb of the contract, over dictionaries and lists."""
