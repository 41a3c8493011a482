"""The verbs of a broker over HTTP: `Client` for callers with a loop, `SyncClient` for others."""

from penstock.client.remote import Client
from penstock.client.waited import SyncClient

__all__ = ["Client", "SyncClient"]
