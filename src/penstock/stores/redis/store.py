"""The Redis store: each verb is one script, and with nothing to do it only looks."""

from penstock.stores.redis.consuming import RedisConsume
from penstock.stores.redis.doctor import RedisHealth
from penstock.stores.redis.documents import RedisDocuments
from penstock.stores.redis.records import RedisRecords


class RedisStore(RedisConsume, RedisRecords, RedisDocuments, RedisHealth):
    """All of it."""
