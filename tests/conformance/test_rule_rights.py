"""A rule acts with the rights of its author for as long as the author has them."""

import pytest

from penstock.agents.anomaly_detector import AnomalyDetector
from penstock.broker.credentials import Credentials
from penstock.errors import Forbidden
from penstock.model.message import Draft
from penstock.rules.access import KEY_SUBJECT, Key
from penstock.rules.rule_checks import parse_rule
from tests.conformance.stage import Stage
from tests.conformance.test_live_anomalies import look

pytestmark = pytest.mark.anyio
COPY = {"name": "r", "queue": "default", "do": [{"copy": "target"}]}


async def save_as(stage: Stage, key: Key) -> str:
    """Saves the rule as a key, and returns the id of the key."""
    credentials = Credentials(stage.store)
    made, _ = await credentials.create_key(key)
    access = await credentials.make_access("default", made.roles, made.grants, made.scopes)
    author = KEY_SUBJECT + made.id
    await stage.broker.limit_rules(author, access.allows).save(parse_rule(COPY))
    return made.id


async def watch(stage: Stage) -> str:
    """Lets the agent look, and returns why the rule is suspended."""
    await AnomalyDetector(stage.store, stage.broker.directory, "me").tick()
    return (await stage.broker.rules.get("r")).suspended


async def test_the_rule_of_a_revoked_key_is_suspended_and_says_why(stage: Stage) -> None:
    await stage.queue("target")
    id = await save_as(stage, Key(id="", name="ann", grants=("publish",)))
    await stage.publish()
    assert await watch(stage) == ""
    await Credentials(stage.store).revoke_key(id)
    assert await watch(stage) == f"its author, key:{id} (ann), is revoked"
    published = await stage.broker.publish(Draft())
    assert published.routed == ()
    assert await stage.places("target") == {"ready": 1}
    assert [each.kind for each in await look(stage)] == ["rule_suspended"]


async def test_a_role_that_is_narrowed_suspends_and_another_author_takes_over(
    stage: Stage,
) -> None:
    await stage.queue("target")
    credentials = Credentials(stage.store)
    await credentials.save_role("default", "router", ["publish"])
    await save_as(stage, Key(id="", name="ann", roles=("router",)))
    await credentials.save_role("default", "router", ["publish", "-publish:target"])
    assert "who lacks publish on queue 'target'" in await watch(stage)
    # The operator of the store may do everything, and becomes the author.
    enabled = await stage.broker.rules.enable("r")
    assert (enabled.author, await watch(stage)) == ("", "")
    published = await stage.broker.publish(Draft())
    assert published.routed == ("default", "target")


async def test_a_trust_that_is_removed_suspends_whoever_saved_the_rule(stage: Stage) -> None:
    await stage.broker.admin.create_scope("other")
    await stage.broker.admin.create_queue("target", scope="other")
    credentials = Credentials(stage.store)
    await credentials.save_trust("default", "other", "default", ["publish"])
    rule = {**COPY, "do": [{"copy": "other:target"}]}
    await stage.broker.rules.save(parse_rule(rule))
    assert await watch(stage) == ""
    await credentials.delete_trust("default", "other", "default")
    assert "scope 'other' does not trust scope 'default'" in await watch(stage)
    with pytest.raises(Forbidden, match="does not trust"):
        await stage.broker.rules.enable("r")


async def test_a_new_process_checks_the_rights_when_it_loads_the_rules(stage: Stage) -> None:
    await stage.queue("target")
    id = await save_as(stage, Key(id="", name="ann", grants=("publish",)))
    await Credentials(stage.store).revoke_key(id)
    other = await stage.another()
    assert (await other.broker.publish(Draft())).routed == ()
