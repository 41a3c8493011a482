"""A worker with the client of openapi-python-client, in the environment of the generator."""

import sys

from generated.api.messages import get_result, list_messages
from generated.api.queues import create_queue
from generated.api.verbs import claim, complete, publish
from generated.client import AuthenticatedClient
from generated.models import (
    ClaimRequest,
    ClaimSource,
    CompleteRequest,
    Deliveries,
    Envelope,
    ErrorCode,
    MessagePage,
    NewQueue,
    PublishRequest,
    PublishResult,
    QueueSettingsChange,
    QueueView,
    State,
)

url, key = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=key)

made = create_queue.sync(
    client=client, body=NewQueue(name="py", settings=QueueSettingsChange(max_attempts=3))
)
assert isinstance(made, QueueView), made
assert made.settings.max_attempts == 3
published = publish.sync(client=client, body=PublishRequest(queue="py", body={"number": 7}))
assert isinstance(published, PublishResult), published
claimed = claim.sync(client=client, body=ClaimRequest(queues=[ClaimSource(queue="py")], wait=5))
assert isinstance(claimed, Deliveries), claimed
for message in claimed.messages:
    complete.sync(
        client=client, body=CompleteRequest(token=message.token, result={"got": message.body})
    )
again = complete.sync(client=client, body=CompleteRequest(token=claimed.messages[0].token))
assert isinstance(again, Envelope), again
assert again.error.code is ErrorCode.ALREADY_SETTLED
page = list_messages.sync(client=client, queue="py", state=State.COMPLETED)
assert isinstance(page, MessagePage), page
assert [each.id for each in page.messages] == [published.id]
print(get_result.sync_detailed(client=client, reference=published.id).content.decode())
