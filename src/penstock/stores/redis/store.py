"""The Redis store: each verb is one script."""

from penstock.stores.redis.consume import RedisConsume
from penstock.stores.redis.copying import RedisCopying
from penstock.stores.redis.documents import RedisDocuments
from penstock.stores.redis.health import RedisHealth
from penstock.stores.redis.records import RedisRecords


class RedisStore(RedisConsume, RedisRecords, RedisDocuments, RedisCopying, RedisHealth):
    """All of it."""
