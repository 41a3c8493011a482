"""One message in a lake, found without Spark."""

from pathlib import Path

import pytest

from penstock.errors import Archived
from penstock.model.message import Record
from penstock.pipeline.extraction.extract import extract
from penstock.pipeline.lake import lake as lakes
from penstock.pipeline.lake.lookup import find_message
from tests.cli.terminal import Terminal
from tests.pipeline.scenes import in_process, on


def read_stored(url: str, id: int) -> Record | None:
    return on(url, lambda broker: broker.store.get(id))


def test_every_message_of_the_lake_is_found_as_the_store_had_it(url: str, lake: Path) -> None:
    extract(in_process(), url, str(lake), batch=7)
    for id in (1, 2, 17, 30):
        record, found = read_stored(url, id), find_message(lakes.find(str(lake)), id)
        assert record is not None
        assert found is not None
        assert found.record.message == record.message
        assert found.record.timeline == record.timeline
        assert (found.queue, found.scope, found.tenant) == ("mail", "default", "default")
    assert find_message(lakes.find(str(lake)), 31) is None


def test_a_message_that_left_the_store_is_shown_from_the_lake(
    url: str, lake: Path, terminal: Terminal
) -> None:
    extract(in_process(), url, str(lake), batch=7)
    ended = [id for id in range(1, 31) if (record := read_stored(url, id)) and record.state.final]
    on(url, lambda broker: broker.admin.prune("mail", limit=1_000))
    with pytest.raises(Archived, match=rf"batch \d of lake .*: penstock show {ended[0]} --lake"):
        on(url, lambda broker: broker.admin.get(ended[0]))
    said = terminal.call("show", ended[0], "--url", url, code=1).err
    assert f"--lake {lake}" in said
    told = terminal.call("show", ended[0], "--lake", lake, "--json").json
    assert (told["id"], told["queue"], told["state"]) == (str(ended[0]), "mail", "failed")
    assert told["timeline"][0]["error"] == "broken"
    assert "broken" in terminal.call("show", ended[0], "--lake", lake).out
    assert "has no message" in terminal.call("show", 999, "--lake", lake, code=1).err
    assert "is not an id" in terminal.call("show", "mail/x", "--lake", lake, code=1).err
    assert "no lake at" in terminal.call("show", 1, "--lake", lake / "nowhere", code=1).err
