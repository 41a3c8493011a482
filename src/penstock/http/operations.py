"""Declares operations. Routing, authorization, OpenAPI and the reference derive from them."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from difflib import get_close_matches
from inspect import getdoc, signature
from typing import (
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    get_args,
    get_type_hints,
)
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct, structs
from msgspec.structs import astuple

from penstock.errors import InvalidInput, Malformed, MethodNotAllowed, NotFound, PenstockError
from penstock.http.auth.principal import Requirement, RightScope
from penstock.http.errors import make_malformed_error, suggest_field
from penstock.rules.access import Right
from penstock.wire.fields import Name

Method: TypeAlias = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Handler: TypeAlias = Callable[..., Awaitable[Any]]
HandlerType = TypeVar("HandlerType", bound=Handler)
DEFAULT_RIGHTS = {"GET": Right.READ}
VERBS = "verbs"
OTHER = "other"
ScopeName = Annotated[Name, Meta(description="The scope (namespace) of the queues.")]
DEFAULT_SCOPE = "default"
SCOPE_FIELD = ("scope", ScopeName, DEFAULT_SCOPE)
PARAMETER = re.compile(r"{(\w+)(:path)?}")
NO_VALUES: dict[str, str] = {}
INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class OperationDetails(TypedDict, total=False):
    """Optional details of an operation."""

    takes: Any
    # Replaces the decoder of `takes`.
    decode: Callable[[bytes], Any]
    # Set by required fields of `takes`.
    needs_body: bool
    status: int
    example: Any
    answer: Any
    also: Mapping[int, str]
    headers: Mapping[str, str]
    public: bool


class Operation(Struct, frozen=True, kw_only=True, eq=False):
    """One method of one path. `takes` and `gives` are wire types or media types."""

    method: Method
    path: str
    tag: str
    # The operationId of OpenAPI.
    name: str
    summary: str
    description: str
    requires: Requirement
    # Changes are audited.
    audited: bool
    # Called with the RequestContext, the parameters in order, and the body if `takes` is a type.
    handler: Handler
    # The fields of the path and the query; the last one is `scope` if the operation is scoped.
    parameters: type[Struct]
    in_path: tuple[str, ...]
    # True for a parameter that may be repeated.
    in_query: Mapping[str, bool]
    scoped: bool
    # Arguments of a request without a query; None if the path has parameters.
    defaults: tuple[Any, ...] | None
    gives: Any
    decode: Callable[[bytes], Any] | None
    takes: Any = None
    needs_body: bool = False
    status: int = 200
    example: Any = None
    answer: Any = None
    # Other success statuses, without a body.
    also: Mapping[int, str] = {}
    # Request headers that the handler reads, with descriptions.
    headers: Mapping[str, str] = {}
    # Needs no credentials: load balancers and API explorers read it.
    public: bool = False

    def read_parameters(self, query: bytes, path: dict[str, str]) -> tuple[tuple[Any, ...], str]:
        """Returns the arguments of the handler and the scope. An unknown parameter is refused."""
        given = read_query(self, query)
        try:
            read = astuple(msgspec.convert({**given, **path}, self.parameters, strict=False))
        except msgspec.ValidationError as error:
            raise make_malformed_error(error) from None
        return (read[:-1], read[-1]) if self.scoped else (read, DEFAULT_SCOPE)

    def read_body(self, body: bytes) -> Any:
        assert self.decode is not None
        if not body:
            if self.needs_body:
                raise Malformed(f"body is empty; {self.method} {self.path} takes JSON")
            body = b"{}"
        try:
            if not body.isascii():
                # Bodies and results are kept as they were sent, without being decoded.
                body.decode()
            return self.decode(body)
        except INVALID as error:
            hint = suggest_field(error, list_fields(self.takes), self.scoped)
            raise make_malformed_error(error, hint) from None


def list_fields(takes: Any) -> list[str]:
    """Returns the names of the fields of a body, of all its alternatives."""
    kinds = [takes, *get_args(takes)]
    structs_of = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Struct)]
    return [each.encode_name for kind in structs_of for each in structs.fields(kind)]


def read_query(operation: Operation, query: bytes) -> dict[str, Any]:
    """Returns the last value of each parameter, and all values of a list."""
    given: dict[str, list[str]] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        given.setdefault(name, []).append(value)
    known = operation.in_query
    for name in given:
        if name not in known:
            raise make_unknown_error(name, known)
    return {name: values if known[name] else values[-1] for name, values in given.items()}


def make_unknown_error(name: str, known: Iterable[str]) -> InvalidInput:
    near = get_close_matches(name[:100], known, 1)
    names = ", ".join(sorted(known))
    advice = (
        f"did you mean {near[0]!r}?"
        if near
        else f"expected one of {names}"
        if names
        else ("this operation takes none")
    )
    error = InvalidInput(f"unknown query parameter {name[:100]!r}; {advice}")
    error.details = ((name[:100], f"unknown query parameter; {advice}"),)
    return error


class OperationTable:
    """Collects the operations of one OpenAPI tag."""

    def __init__(self, tag: str, *, scoped: bool = True) -> None:
        self.tag = tag
        self.scoped = scoped
        self.all: list[Operation] = []

    def add(
        self,
        method: Method,
        path: str,
        summary: str,
        gives: Any,
        *,
        name: str | None = None,
        # None admits every authenticated caller.
        right: Right | Literal["by method"] | None = "by method",
        extent: RightScope = RightScope.QUEUE,
        scoped: bool | None = None,
        **details: Unpack[OperationDetails],
    ) -> Callable[[HandlerType], HandlerType]:
        """`scoped` operations take ?scope=. The table has the default."""
        needed = DEFAULT_RIGHTS.get(method, Right.MANAGE) if right == "by method" else right
        has_scope = self.scoped if scoped is None else scoped

        def declare(handler: HandlerType) -> HandlerType:
            self.all.append(
                Operation(
                    method=method,
                    path=path,
                    tag=self.tag,
                    name=make_camel_case(name or handler.__name__),
                    summary=summary,
                    gives=gives,
                    requires=Requirement(needed, extent),
                    audited=needed in (Right.MANAGE, Right.ACCESS),
                    **describe_handler(handler, path, details, has_scope),
                )
            )
            return handler

        return declare


def describe_handler(
    handler: Handler, path: str, details: OperationDetails, scoped: bool
) -> dict[str, Any]:
    """Returns the fields of an operation that follow from its handler and its details."""
    takes = details.get("takes")
    has_type = is_wire_type(takes)
    in_path = tuple(found[1] for found in PARAMETER.finditer(path))
    parameters = make_parameters(handler, has_type, scoped)
    return {
        "handler": handler,
        "description": getdoc(handler) or "",
        "parameters": parameters,
        "in_path": in_path,
        "in_query": {
            field.name: field.default == ()
            for field in structs.fields(parameters)
            if field.name not in in_path
        },
        "scoped": scoped,
        "defaults": None if in_path else astuple(parameters())[: -1 if scoped else None],
        "decode": msgspec.json.Decoder(takes).decode if has_type else None,
        "needs_body": has_required_fields(takes),
        **details,
    }


def make_parameters(handler: Handler, has_body: bool, scoped: bool) -> type[Struct]:
    """Makes the struct of a handler's parameters, without the context and the body."""
    hints = get_type_hints(handler, include_extras=True)
    names = list(signature(handler).parameters.values())[1:]
    fields: list[Any] = [
        (each.name, hints[each.name])
        if each.default is each.empty
        else (each.name, hints[each.name], each.default)
        for each in (names[:-1] if has_body else names)
    ]
    return msgspec.defstruct("Parameters", [*fields, SCOPE_FIELD] if scoped else fields)


def has_required_fields(takes: Any) -> bool:
    return is_wire_type(takes) and any(field.required for field in structs.fields(takes))


def is_wire_type(kind: Any) -> bool:
    """False for None and for media types."""
    return kind is not None and not isinstance(kind, str)


def make_camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


class OperationIndex:
    """Finds the operation of a request: by one lookup, or by the first template that matches."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.exact: dict[str, dict[str, Operation]] = {}
        self.templates: dict[re.Pattern[str], dict[str, Operation]] = {}
        for operation in operations:
            if operation.in_path:
                methods = self.templates.setdefault(compile_template(operation.path), {})
            else:
                methods = self.exact.setdefault(operation.path, {})
            methods[operation.method] = operation
            if operation.public and operation.method == "GET":
                # Load balancers send HEAD. The connection leaves out the body.
                methods["HEAD"] = operation

    def find(self, method: str, path: str) -> tuple[Operation | None, dict[str, str]]:
        """Returns the operation and the parameters of its path."""
        if (methods := self.exact.get(path)) is not None:
            return methods.get(method), NO_VALUES
        for template, methods in self.templates.items():
            if method in methods and (found := template.fullmatch(path)):
                return methods[method], found.groupdict()
        return None, {}

    def list_matching(self, path: str) -> list[Operation]:
        """Returns the operations of a path, whatever their method."""
        found = list(self.exact.get(path, {}).values())
        for template, methods in self.templates.items():
            if template.fullmatch(path):
                found.extend(methods.values())
        return found

    def find_template(self, path: str) -> str:
        """Returns the template of a path that has no operation of the request's method."""
        return next((operation.path for operation in self.list_matching(path)), OTHER)

    def explain_missing(self, method: str, path: str) -> PenstockError:
        """Returns the error of a request that has no operation."""
        methods = {operation.method for operation in self.list_matching(path)}
        if not methods:
            return NotFound(f"no route {path[:200]!r}; /openapi.json lists them")
        error = MethodNotAllowed(f"{path[:200]} does not take {method}")
        error.details = (("allow", ", ".join(sorted(methods))),)
        return error


def compile_template(path: str) -> re.Pattern[str]:
    def replace(found: re.Match[str]) -> str:
        return f"(?P<{found[1]}>{'.*' if found[2] else '[^/]+'})"

    return re.compile(PARAMETER.sub(replace, path), re.DOTALL)
