"""The store for Redis, Valkey and KVRocks; every verb is one Lua script."""
