"""The verbs of a broker over HTTP: `Client` for callers with a loop, `SyncClient` for others."""

from penstock.client.client import Client
from penstock.client.sync import SyncClient

__all__ = ["Client", "SyncClient"]
