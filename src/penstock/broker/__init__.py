"""The broker: operations of producers, consumers and operators on one store."""

from penstock.broker.local import Broker

__all__ = ["Broker"]
