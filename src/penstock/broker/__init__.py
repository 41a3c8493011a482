"""The broker: operations of producers, consumers and operators on one store."""
