"""Finds schemas that take exponential time.

`anyOf` and its like evaluate several schemas for the same value. If these lead to the same schema
again, through references or one level deeper in the body, the evaluations multiply. The validator
remembers the outcome of a schema that contains itself, but lists its errors again and again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote, urljoin

from penstock.errors import InvalidInput

# Schemas that may be evaluated for one value of a body.
MAX_EVALUATIONS = 1_000
# Combinations of schemas that meet in one value, over all values.
MAX_COMBINATIONS = 20_000
LISTS = ("allOf", "anyOf", "oneOf")
SINGLES = ("not", "if", "then", "else")
MAPS = ("dependentSchemas", "dependencies")
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
NAMES = ("$anchor", "$dynamicAnchor")
# The schemas that one value must fit, and how often each of them is evaluated.
Meeting: TypeAlias = frozenset[tuple[int, int]]


def refuse_exponential(schema: Any) -> None:
    """Raises InvalidInput if validation may evaluate a value more than MAX_EVALUATIONS times."""
    if isinstance(schema, dict):
        SchemaWalk(schema, remembers=True).walk()


def has_countless_errors(schema: Any) -> bool:
    """True if listing the errors of a body may take exponential time."""
    try:
        if isinstance(schema, dict):
            SchemaWalk(schema, remembers=False).walk()
    except InvalidInput:
        return True
    return False


class SchemaWalk:
    """Follows a body into a schema: which schemas meet in each of its values."""

    def __init__(self, schema: dict[str, Any], remembers: bool) -> None:
        self.root: Any = schema
        self.nodes: dict[int, Any] = {id(schema): schema}
        self.pointers: dict[int, str] = {}
        self.indexed: list[dict[str, Any]] = []
        self.by_id: dict[str, Any] = {}
        self.by_anchor: dict[str, Any] = {}
        self.base = str(schema.get("$id", ""))
        self._index()
        self.targets = {
            id(found): found for node in self.indexed for found in self._list_referred(node)
        }
        # Schemas that contain themselves, if they are evaluated once for a value.
        self.recursive = frozenset(
            place
            for place, target in self.targets.items()
            if remembers and self._reaches_itself(target)
        )

    def walk(self) -> None:
        first: Meeting = frozenset({(id(self.root), 1)})
        # Without references, each schema is evaluated at most once for a value.
        known, pending = {first}, [first] if self.targets else []
        while pending:
            evaluated = self._evaluate(pending.pop())
            for meeting in self._go_deeper(evaluated):
                if meeting not in known:
                    known.add(meeting)
                    pending.append(meeting)
            if len(known) > MAX_COMBINATIONS:
                raise InvalidInput(
                    f"the schema combines its parts in more than {MAX_COMBINATIONS:,} ways"
                )

    def _index(self) -> None:
        pending: list[tuple[str, Any]] = [("", self.root)]
        while pending:
            pointer, node = pending.pop()
            pending += list_children(pointer, node)
            if not isinstance(node, dict):
                continue
            self.pointers[id(node)] = pointer
            self.indexed.append(node)
            for name in NAMES:
                if isinstance(node.get(name), str):
                    self.by_anchor[node[name]] = node
            if isinstance(node.get("$id"), str):
                self.by_id[urljoin(self.base, node["$id"]).rstrip("#")] = node

    def _evaluate(self, meeting: Meeting) -> Counter[int]:
        """Returns the schemas that are evaluated for one value, and how often."""
        found: Counter[int] = Counter()
        pending = [(self.nodes[node], frozenset[int]()) for node, count in meeting
                   for _ in range(count)]  # fmt: skip
        total = 0
        while pending:
            node, above = pending.pop()
            total += 1
            if total > MAX_EVALUATIONS:
                raise InvalidInput(
                    f"schema at {self.pointers[id(node)] or '/'}: the parts of allOf, anyOf and"
                    " oneOf lead to the same schema again and again, which may be evaluated more"
                    f" than {MAX_EVALUATIONS:,} times for one value"
                )
            if id(node) in self.recursive and id(node) in found:
                continue
            found[self._remember(node)] += 1
            # A schema that refers to itself without going deeper is evaluated once.
            above |= {id(node)}
            pending += [(each, above) for each in self._list_here(node) if id(each) not in above]
        return found

    def _go_deeper(self, evaluated: Counter[int]) -> Iterator[Meeting]:
        """Lists which schemas meet in the fields and in the items of a value."""
        nodes = [(self.nodes[node], count) for node, count in evaluated.items()]
        for reach in (FIELDS, ITEMS):
            others: Counter[int] = Counter()
            named: dict[object, Counter[int]] = {}
            for node, count in nodes:
                for each in reach.list_others(node):
                    others[self._remember(each)] += count
                for name, each in reach.list_named(node):
                    own = named.setdefault(name, Counter())
                    own[self._remember(each)] += count
                    # In this field, the schema of the other fields does not apply.
                    own.subtract({id(other): count for other in reach.list_excluded(node)})
            yield self._meet(others)
            for own in named.values():
                own.update(others)
                yield self._meet(own)

    def _meet(self, counts: Counter[int]) -> Meeting:
        return frozenset(
            (node, 1 if node in self.recursive else count)
            for node, count in counts.items()
            if count > 0
        )

    def _reaches_itself(self, start: Any) -> bool:
        seen: set[int] = set()
        pending = list(self._list_contained(start))
        while pending:
            node = pending.pop()
            if node is start:
                return True
            if id(node) not in seen:
                seen.add(id(node))
                pending += self._list_contained(node)
        return False

    def _list_contained(self, node: Any) -> Iterator[Any]:
        if isinstance(node, dict):
            yield from self._list_referred(node)
        yield from (child for _, child in list_children("", node))

    def _list_referred(self, node: Any) -> Iterator[Any]:
        for keyword in REFERENCES:
            if isinstance(node.get(keyword), str):
                yield from filter(is_schema, (self._resolve(node[keyword]),))

    def _remember(self, node: Any) -> int:
        self.nodes[id(node)] = node
        return id(node)

    def _list_here(self, node: Any) -> Iterator[Any]:
        """Lists the schemas that a schema evaluates for the same value."""
        for keyword in LISTS:
            yield from filter(is_schema, get_list(node, keyword))
        for keyword in SINGLES:
            yield from filter(is_schema, (node.get(keyword),))
        for keyword in MAPS:
            yield from filter(is_schema, get_map(node, keyword).values())
        yield from self._list_referred(node)

    def _resolve(self, reference: str) -> Any:
        place, _, fragment = reference.partition("#")
        found = self.root
        if place:
            found = self.by_id.get(urljoin(self.base, place))
        if fragment and not fragment.startswith("/"):
            return self.by_anchor.get(fragment, found)
        for key in unquote(fragment).split("/")[1:]:
            found = step_into(found, key.replace("~1", "/").replace("~0", "~"))
        return found


def step_into(node: Any, key: str) -> Any:
    if isinstance(node, dict):
        return node.get(key)
    if isinstance(node, list) and key.isdigit() and int(key) < len(node):
        return node[int(key)]
    return None


def is_schema(node: Any) -> bool:
    return isinstance(node, dict)


def get_map(node: Any, keyword: str) -> dict[str, Any]:
    found = node.get(keyword)
    return found if isinstance(found, dict) else {}


def get_list(node: Any, keyword: str) -> list[Any]:
    found = node.get(keyword)
    return found if isinstance(found, list) else []


class Reach(NamedTuple):
    """The keywords with the schemas of the fields, or of the items, of a value."""

    named: tuple[str, ...]
    # These apply to all, and those only to what is not named.
    all: tuple[str, ...]
    rest: tuple[str, ...]

    def list_named(self, node: Any) -> Iterator[tuple[object, Any]]:
        for keyword in self.named:
            pairs: Iterable[tuple[object, Any]] = enumerate(get_list(node, keyword))
            if keyword == "properties":
                pairs = get_map(node, keyword).items()
            yield from ((name, each) for name, each in pairs if is_schema(each))

    def list_others(self, node: Any) -> Iterator[Any]:
        for keyword in (*self.all, *self.rest):
            found = node.get(keyword)
            if keyword == "patternProperties" and isinstance(found, dict):
                yield from filter(is_schema, found.values())
            elif is_schema(found):
                yield found

    def list_excluded(self, node: Any) -> Iterator[Any]:
        return (node[each] for each in self.rest if is_schema(node.get(each)))


FIELDS = Reach(
    named=("properties",),
    all=("patternProperties", "unevaluatedProperties"),
    rest=("additionalProperties",),
)
ITEMS = Reach(
    # Before draft 2020-12, the schemas of the first items are a list in `items`.
    named=("prefixItems", "items"),
    all=("contains", "unevaluatedItems", "additionalItems"),
    rest=("items",),
)


def list_children(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    items: Iterable[tuple[object, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    return ((f"{pointer}/{escape(key)}", child) for key, child in items)


def escape(key: object) -> str:
    return str(key).replace("~", "~0").replace("/", "~1")
