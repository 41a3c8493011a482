"""Audit entries tell which fields an act changed, on every store."""

import pytest

from penstock.broker.credentials import Credentials
from penstock.model.documents import AuditEntry, acting
from penstock.model.queue import QueueState
from penstock.rules.access import Key
from penstock.rules.audit_changes import read_changes
from tests.conformance.stage import Stage

pytestmark = pytest.mark.anyio


async def test_an_act_tells_what_it_changed(stage: Stage) -> None:
    act = AuditEntry(subject="ada", tenant="default", verb="change", target="mail")
    await stage.queue("mail")
    dead = await stage.dead("mail")
    acting.set(act)
    await stage.admin.set_queue("mail", lease=60, backoff={"max": 60})
    await stage.admin.set_state("mail", QueueState.PAUSED)
    await stage.admin.redrive(dead)
    _, token = await Credentials(stage.store).create_key(Key(id="", name="k", roles=("viewer",)))
    acting.set(None)
    created, redriven, paused, changed = await stage.store.acts(limit=10)
    assert read_changes(changed.detail) == {"lease": [30.0, 60.0], "backoff.max": [3600.0, 60.0]}
    assert read_changes(paused.detail) == {"state": ["active", "paused"]}
    assert read_changes(redriven.detail) == {"state": ["dead", "ready"]}
    assert (read_changes(created.detail) or {})["digest"] == "changed"
    assert token not in created.detail
