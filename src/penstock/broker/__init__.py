"""The broker: every verb of producers, consumers and operators, over one store."""

from penstock.broker.local import Broker

__all__ = ["Broker"]
