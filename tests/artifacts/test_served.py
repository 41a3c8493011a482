"""A server that keeps artifacts in a bucket."""

import os
from pathlib import Path

from tests.http.served import served
from tests.http.test_artifacts import claim_one, complete, get, inline, list_sizes, put


def test_a_server_keeps_files_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    large = os.urandom(6_000_000)
    with served(f"sqlite:///{tmp_path}/q.db", tmp_path, "--artifacts", bucket) as server:
        message = claim_one(server)
        assert put(server, message["token"], "large.bin", large).status == 201
        assert list_sizes(server, message["id"]) == {}
        complete(server, message, artifacts=[inline("small.txt", b"small")])
        assert list_sizes(server, message["id"]) == {"large.bin": len(large), "small.txt": 5}
        assert get(server, message["id"], "large.bin").body == large
        assert get(server, message["id"], "other").code == "NOT_FOUND"
    assert not list(tmp_path.glob("*.artifacts"))
