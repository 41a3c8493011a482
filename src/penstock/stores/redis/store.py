"""The Redis store: each verb is one script, and with nothing to do it only looks."""

from penstock.stores.redis.consuming import Consuming
from penstock.stores.redis.doctor import Doctor
from penstock.stores.redis.records import Records


class RedisStore(Consuming, Records, Doctor):
    """All of it."""
