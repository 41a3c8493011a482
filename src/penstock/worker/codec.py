"""Encodes arguments and results as JSON, and decodes them by their annotations."""

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_type_hints

import msgspec

from penstock.errors import InvalidInput

STORABLE = "pass JSON types, dataclasses, msgspec structs or pydantic models"
JSON = (type(None), bool, int, float, str)
DECODE_ERRORS = (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError)
NO_ARGUMENTS: dict[str, Any] = {}


def to_json(value: Any) -> Any:
    """Encodes pydantic models, which msgspec does not know."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    advice = "pass str(path)" if isinstance(value, os.PathLike) else STORABLE
    raise NotImplementedError(f"{type(value).__name__} cannot be stored; {advice}")


def from_json(kind: type, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        return kind.model_validate(value)
    raise NotImplementedError(f"{kind.__name__} cannot be read back")


encode = msgspec.json.Encoder(enc_hook=to_json).encode


def make_reader(kind: Any, name: str) -> Callable[[bytes], Any]:
    try:
        return msgspec.json.Decoder(kind, dec_hook=from_json).decode
    except DECODE_ERRORS as error:
        raise InvalidInput(f"{name}: its annotation cannot be stored: {error}") from None


class Values:
    """The codec of one annotated type: a result, or the body of a subscriber's message."""

    def __init__(self, kind: Any, name: str) -> None:
        self.name = name
        self.kind = kind
        self.read = make_reader(kind, name)

    def encode(self, value: Any) -> bytes:
        try:
            return encode(value)
        except DECODE_ERRORS as error:
            raise InvalidInput(f"{self.name}: {error}") from None

    def encode_checked(self, value: Any) -> bytes:
        """Encodes a value, and refuses one that its annotation could not decode."""
        body = self.encode(value)
        if self.kind is not Any:
            self.decode(body)
        return body

    @property
    def is_optional(self) -> bool:
        """True if the annotation accepts None."""
        try:
            self.read(b"null")
        except DECODE_ERRORS:
            return False
        return True

    def decode(self, body: bytes) -> Any:
        try:
            return self.read(body)
        except DECODE_ERRORS as error:
            raise InvalidInput(f"{self.name}: {error}") from None


class RawBody(Values):
    """Passes bodies through as bytes."""

    def __init__(self, name: str) -> None:
        super().__init__(bytes, name)

    def decode(self, body: bytes) -> Any:
        return body


class Arguments:
    """The codec of a function's parameters, without its context, as one JSON object."""

    def __init__(self, function: Callable[..., Any], name: str, skip: Sequence[str] = ()) -> None:
        self.name = name
        signature = inspect.signature(function)
        kept = [each for each in signature.parameters.values() if each.name not in skip]
        refuse_unnamed(kept, name)
        self.signature = signature.replace(parameters=kept)
        hints = {
            key: Any if kind is object else kind for key, kind in read_hints(function, name).items()
        }
        kinds = {each.name: hints.get(each.name, Any) for each in kept}
        self.kinds = kinds
        self.plain = {name for name, kind in kinds.items() if kind is Any}
        self.struct = msgspec.defstruct(
            "Arguments",
            [make_field(each, kinds[each.name]) for each in kept],
            kw_only=True,
            forbid_unknown_fields=True,
        )
        self.decoder = make_reader(self.struct, f"task {name!r}")
        self.by_name = [each.name for each in kept if each.kind is each.KEYWORD_ONLY]

    def encode(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """Refuses values that cannot be stored, or would decode to something else."""
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise InvalidInput(f"task {self.name!r}: {error}") from None
        try:
            body = encode(given)
        except DECODE_ERRORS as error:
            raise self.make_refusal(find_culprit(given), str(error)) from None
        try:
            stored = self.decoder(body)
        except DECODE_ERRORS as error:
            raise self.explain_misfit(given, error) from None
        for name, value in given.items():
            self.check(name, value, getattr(stored, name))
        return body

    def check(self, name: str, value: Any, stored: Any) -> None:
        if name in self.plain and not is_json(value):
            kind = type(value).__name__
            raise self.make_refusal(
                name, f"{kind} is not a JSON type; annotate the parameter with its type"
            )
        if not is_same_after_json(value, stored):
            raise self.make_refusal(name, f"{value!r} would come back as {stored!r}")

    def decode(self, body: bytes) -> Any:
        try:
            return self.decoder(body or b"{}")
        except DECODE_ERRORS as error:
            raise InvalidInput(f"task {self.name!r}: {error}") from None

    def read(self, body: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decodes a body to positional and keyword arguments."""
        values = msgspec.structs.astuple(self.decode(body))
        if not self.by_name:
            return values, NO_ARGUMENTS
        first = len(values) - len(self.by_name)
        return values[:first], dict(zip(self.by_name, values[first:], strict=True))

    def explain_misfit(self, given: Mapping[str, Any], error: Exception) -> InvalidInput:
        """Names the argument that does not fit its annotation, and both types."""
        for name, value in given.items():
            try:
                msgspec.json.decode(encode(value), type=self.kinds[name], dec_hook=from_json)
            except DECODE_ERRORS as misfit:
                wanted, found = name_type(self.kinds[name]), name_type(type(value))
                return self.make_refusal(name, f"{found} is not {wanted}: {misfit}")
        return InvalidInput(f"task {self.name!r}: {error}")

    def make_refusal(self, name: str, why: str) -> InvalidInput:
        return InvalidInput(f"task {self.name!r}, argument {name!r}: {why}")


def refuse_unnamed(parameters: Iterable[inspect.Parameter], name: str) -> None:
    for each in parameters:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD, each.POSITIONAL_ONLY):
            raise InvalidInput(
                f"task {name!r}, parameter {each}: *args, **kwargs and positional-only parameters"
                " cannot be enqueued"
            )


def read_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as error:
        raise InvalidInput(f"{name!r}: an annotation cannot be read: {error}") from None


def make_field(parameter: inspect.Parameter, kind: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if parameter.default is parameter.empty:
        return (parameter.name, kind)
    default = parameter.default
    return (parameter.name, kind, msgspec.field(default_factory=lambda: default))


def name_type(kind: Any) -> str:
    return getattr(kind, "__name__", None) or str(kind).replace("typing.", "")


def find_culprit(given: Mapping[str, Any]) -> str:
    for name, value in given.items():
        try:
            encode(value)
        except DECODE_ERRORS:
            return name
    return "?"


def is_json(value: Any) -> bool:
    if isinstance(value, JSON):
        return True
    if type(value) is list:
        return all(map(is_json, value))
    if type(value) is dict:
        return all(type(key) is str and is_json(item) for key, item in value.items())
    return False


def is_same_after_json(given: Any, stored: Any) -> bool:
    """True if a value survives the JSON round trip. A list may represent a tuple."""
    if isinstance(given, JSON):
        return bool(stored == given)
    if isinstance(given, list | tuple) and isinstance(stored, list | tuple):
        return len(given) == len(stored) and all(map(is_same_after_json, given, stored))
    if isinstance(given, dict) and isinstance(stored, dict):
        return given.keys() == stored.keys() and all(
            is_same_after_json(given[k], stored[k]) for k in given
        )
    if type(given) is not type(stored):
        return False
    names = list_fields(given)
    if names is None:
        return bool(given == stored)
    return all(is_same_after_json(getattr(given, name), getattr(stored, name)) for name in names)


def list_fields(value: Any) -> Iterable[str] | None:
    """Returns the field names of a struct, dataclass or model, and None for other values."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    if dataclasses.is_dataclass(value):
        return [field.name for field in dataclasses.fields(value)]
    fields: Iterable[str] | None = getattr(type(value), "model_fields", None)
    return fields
