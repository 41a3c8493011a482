"""Loads the policy of governed queues: which schemas their messages must match."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.broker.broadcast.fanout import NO_BROADCASTS, BroadcastPolicy, load_broadcasts
from penstock.broker.documents import list_documents
from penstock.broker.routing.policy import NO_POLICY, RuleLoader, RulePolicy
from penstock.errors import CannotGovern, PenstockError
from penstock.model.documents import Document
from penstock.model.queue import Queue
from penstock.model.schemas import BINDING, FORMAT, SCHEMA, Binding, Schema
from penstock.rules.globs import match_glob
from penstock.rules.schema_cost import has_countless_errors
from penstock.rules.schemas import compile_schema, decode_json
from penstock.store import Store

if TYPE_CHECKING:
    from jsonschema_rs import Validator

QueueKey = tuple[str, str, str]
MAX_CACHED_TYPES = 1_000
decode_binding = msgspec.json.Decoder(Binding).decode
decode_schema = msgspec.json.Decoder(Schema).decode


def get_queue_key(queue: Queue) -> QueueKey:
    return queue.scope.tenant, queue.scope.name, queue.name


class BoundSchema(Struct, frozen=True):
    """A schema that messages of a type must match, or why this process cannot check it."""

    type: str
    reference: str
    validator: "Validator | None" = None
    # True if listing what differs may take exponential time.
    countless: bool = False
    problem: str = ""


class Policy:
    """The policy of all governed queues, as of one version of the directory."""

    def __init__(
        self,
        schemas: Mapping[QueueKey, Sequence[BoundSchema]],
        rules: RulePolicy = NO_POLICY,
        broadcasts: BroadcastPolicy = NO_BROADCASTS,
    ) -> None:
        self.schemas = schemas
        self.rules = rules
        self.broadcasts = broadcasts
        self.cached: dict[tuple[int, str], tuple[BoundSchema, ...]] = {}

    def governs(self, queue: Queue) -> bool:
        if queue.settings.kind == "broadcast":
            return True
        return self.has_schemas(queue) or self.rules.governs(queue)

    def has_schemas(self, queue: Queue) -> bool:
        return get_queue_key(queue) in self.schemas

    def find_schemas(self, queue: Queue, type: str) -> tuple[BoundSchema, ...]:
        """Returns the schemas that messages of this type must match. Raises CannotGovern."""
        asked = (queue.id, type)
        found = self.cached.get(asked)
        if found is None:
            bound = self.schemas.get(get_queue_key(queue), ())
            found = tuple(each for each in bound if match_glob(each.type, type))
            for each in found:
                if each.validator is None:
                    raise CannotGovern(f"queue {queue.name!r}: {each.problem}")
            if len(self.cached) >= MAX_CACHED_TYPES:
                self.cached.clear()
            self.cached[asked] = found
        return found


class PolicyLoader:
    """Loads policies, and compiles each schema once."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.compiled: dict[bytes, BoundSchema] = {}
        self.rules = RuleLoader(store)

    async def load(self, queues: Mapping[QueueKey, Queue]) -> Policy:
        bound: dict[QueueKey, list[BoundSchema]] = {}
        used: dict[bytes, BoundSchema] = {}
        for document in await list_documents(self.store, BINDING):
            tenant, scope, queue, type = split_binding_name(document.name)
            schema = await self._load_schema(document, tenant, type, used)
            bound.setdefault((tenant, scope, queue), []).append(schema)
        self.compiled = used
        rules = await self.rules.load(queues)
        return Policy(bound, rules, await load_broadcasts(self.store, queues))

    async def _load_schema(
        self, document: Document, tenant: str, type: str, used: dict[bytes, BoundSchema]
    ) -> BoundSchema:
        """A schema that this process cannot read governs nevertheless: it refuses."""
        reference = ""
        try:
            binding = decode_binding(document.body)
            reference = binding.reference
            refuse_newer(binding.format)
            name = make_schema_name(tenant, binding.scope, binding.schema, binding.version)
            stored = await self.store.document(SCHEMA, name)
            if stored is None:
                raise CannotGovern("it was removed while it was read")
            compiled = self._compile(stored.body, used)
            return replace(compiled, type=type, reference=reference)
        except (PenstockError, msgspec.DecodeError) as error:
            problem = f"schema {reference or 'of its binding'} cannot be used: {error}"
            return BoundSchema(type, reference, problem=problem)

    def _compile(self, body: bytes, used: dict[bytes, BoundSchema]) -> BoundSchema:
        """Returns the schema of a document, not yet bound to a type."""
        found = used.get(body) or self.compiled.get(body)
        if found is None:
            stored = decode_schema(body)
            refuse_newer(stored.format)
            schema = decode_json(bytes(stored.schema))
            validator, countless = compile_schema(schema), has_countless_errors(schema)
            found = BoundSchema("", "", validator=validator, countless=countless)
        used[body] = found
        return found


def refuse_newer(format: int) -> None:
    if format > FORMAT:
        raise CannotGovern(
            f"a newer version of Penstock wrote it (format {format}); upgrade this process"
        )


def make_schema_name(tenant: str, scope: str, name: str, version: int) -> str:
    """Returns the name of a document. Names sort by version."""
    return f"{tenant}/{scope}/{name}@{version:06}"


def make_binding_name(tenant: str, scope: str, queue: str, type: str) -> str:
    return f"{tenant}/{scope}/{queue} {type}"


def split_binding_name(name: str) -> tuple[str, str, str, str]:
    """Names of scopes and queues have no spaces, but those of subscriptions have a slash."""
    place, _, type = name.partition(" ")
    tenant, scope, queue = place.split("/", 2)
    return tenant, scope, queue, type
