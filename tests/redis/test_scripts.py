"""A script touches no key that it was not given: some servers keep only those apart."""

import re

import pytest

from penstock.stores.redis.scripts import FOLDER, READS, load_script

VERBS = sorted(
    path.name.removesuffix(".lua") for path in FOLDER.iterdir() if path.name.endswith(".lua")
)
CALL = re.compile(r"\bcall\('(\w+)', (\w+)")
# Functions that are given the name of a key by their callers.
GIVEN = {"set", "key", "typed"}
KEYLESS = {"TIME", "PUBLISH"}
WRITES = {
    "HSET", "HDEL", "HINCRBY", "HSETNX", "ZADD", "ZREM", "ZREMRANGEBYLEX", "XADD", "XDEL",
}  # fmt: skip
PLAIN = WRITES | {
    "HGET", "HMGET", "HEXISTS", "HSTRLEN", "HKEYS", "HVALS", "ZRANGE", "ZRANGEBYLEX",
    "ZREVRANGEBYLEX", "ZRANGEBYSCORE", "ZSCORE", "ZLEXCOUNT", "XRANGE", "TIME", "PUBLISH", "EXISTS",
}  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
def test_every_key_is_given(verb: str) -> None:
    found = load_script(verb)
    text = found.text.decode()
    named = {key for command, key in CALL.findall(text) if command not in KEYLESS}
    assert named - GIVEN <= set(found.keys)
    assert "KEYS[" not in text.partition("\n")[2]


@pytest.mark.parametrize("verb", VERBS)
def test_every_command_is_a_plain_one(verb: str) -> None:
    commands = {command for command, _ in CALL.findall(load_script(verb).text.decode())}
    assert commands <= PLAIN


@pytest.mark.parametrize("verb", sorted(READS))
def test_what_is_said_to_read_writes_nothing_of_its_own(verb: str) -> None:
    own = FOLDER.joinpath(f"{verb}.lua").read_text()
    assert not {command for command, _ in CALL.findall(own)} & WRITES
