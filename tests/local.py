"""Returns the local broker behind the interface, for tests that inspect its store."""

from penstock.broker.interfaces.broker import BrokerInterface
from penstock.broker.local import Broker


def local(broker: BrokerInterface) -> Broker:
    assert isinstance(broker, Broker)
    return broker
