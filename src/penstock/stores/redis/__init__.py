"""Redis, Valkey and KVRocks: every verb is one script."""
