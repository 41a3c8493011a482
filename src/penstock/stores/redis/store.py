"""The Redis store: each verb is one script, and with nothing to do it only looks."""

from penstock.stores.redis.consuming import Consuming
from penstock.stores.redis.doctor import Doctor
from penstock.stores.redis.documents import Documents
from penstock.stores.redis.records import Records


class RedisStore(Consuming, Records, Documents, Doctor):
    """All of it."""
