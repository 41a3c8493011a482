"""Rules: reads and checks the specs of human steps and the inputs of people."""

from collections.abc import Mapping
from datetime import date
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.human import DecisionOption, HumanSpec, InputField, TimeoutPolicy
from penstock.rules.validation import check_name, check_number, check_text, clip

MAX_TITLE = 200
MAX_CONTENT = 65_536
MAX_FIELDS = 50
MAX_OPTIONS = 20
MAX_LABEL = 200
MAX_TEXT_INPUT = 16_384
MAX_ASSIGNED = 100
MAX_APPROVALS = 20
MAX_ESCALATIONS = 5
MAX_REMINDERS = 10
MAX_TIMEOUT_S = 10 * 365 * 86_400
DEFAULT_OPTIONS = (
    DecisionOption(id="approve", label="Approve", kind="approve"),
    DecisionOption(id="reject", label="Reject", kind="reject"),
)
encode = msgspec.json.Encoder(order="sorted").encode


def parse_spec(given: Mapping[str, Any]) -> HumanSpec:
    """Reads a spec, also one with ScaiQueue's names: context, input, decision, timeout_s."""
    try:
        spec = msgspec.convert(translate(given), HumanSpec)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"human step: {error}") from None
    spec = replace(spec, options=spec.options or DEFAULT_OPTIONS)
    check_spec(spec)
    return spec


def translate(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of HumanSpec. Unknown ones are refused."""
    fields = dict(given)
    take_context(fields)
    if (seconds := fields.pop("timeout_s", UNSET)) is not UNSET:
        fields.setdefault("timeout", seconds)
    if (form := fields.get("input")) is not None:
        fields["input"] = translate_form(form)
    if (decision := fields.pop("decision", None)) is not None:
        take_decision(fields, decision)
    if isinstance(policy := fields.get("on_timeout"), str | Mapping):
        fields["on_timeout"] = translate_policy(policy)
    known = set(HumanSpec.__struct_fields__)
    if unknown := sorted(fields.keys() - known):
        raise InvalidInput(
            f"human step: unknown field {clip(unknown[0])};"
            f" expected one of {', '.join(sorted(known))}"
        )
    return fields


def take_context(fields: dict[str, Any]) -> None:
    """ScaiQueue's `context` is the text to read, or an object with a title and a text."""
    context = fields.pop("context", None)
    if isinstance(context, str):
        fields.setdefault("content", context)
    elif isinstance(context, Mapping):
        for theirs, ours in (("title", "title"), ("summary", "content"), ("content", "content")):
            if theirs in context:
                fields.setdefault(ours, context[theirs])
    elif context is not None:
        raise InvalidInput(f"human step: context is {clip(context)}; it must be text or an object")
    if "title" not in fields and isinstance(fields.get("content"), str):
        first_line = fields["content"].lstrip("# \n").partition("\n")[0]
        fields["title"] = first_line[:MAX_TITLE] or "Decision"


def translate_form(form: Any) -> Any:
    """Reads a JSON Schema object, a list of fields, or fields by name."""
    if isinstance(form, list):
        named = [each for each in form if isinstance(each, Mapping) and "name" in each]
        if len(named) < len(form):
            raise InvalidInput("human step: each field of input needs a name")
        return {each["name"]: translate_field(each) for each in named}
    if isinstance(form, Mapping):
        if "properties" in form:
            form = merge_required(form)
        return {name: translate_field(field) for name, field in form.items()}
    return form


def merge_required(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Moves the list of required properties of a JSON Schema to the fields themselves."""
    required = schema.get("required", ())
    return {
        name: {**field, "required": True} if name in required else field
        for name, field in schema["properties"].items()
    }


def translate_field(field: Any) -> Any:
    if not isinstance(field, Mapping):
        return field
    renamed = {"maxLength": "max_length", "label": "title"}
    formats = {"textarea": "long", "long-text": "long"}
    kept = {renamed.get(key, str(key)): value for key, value in field.items() if key != "name"}
    if "format" in kept:
        kept["format"] = formats.get(kept["format"], kept["format"])
    known = set(InputField.__struct_fields__)
    if unknown := sorted(kept.keys() - known):
        raise InvalidInput(
            f"human step: an input field has the unknown key {clip(unknown[0])};"
            f" forms are flat, with the keys {', '.join(sorted(known))}"
        )
    return kept


def take_decision(fields: dict[str, Any], decision: Any) -> None:
    """`decision` lists the options, or holds them with the required inputs of each."""
    if isinstance(decision, Mapping):
        options = decision.get("options", [])
        if extra := sorted(decision.keys() - {"options"}):
            raise InvalidInput(f"human step: decision has the unknown key {clip(extra[0])}")
    else:
        options = decision
    if not isinstance(options, list):
        raise InvalidInput("human step: decision must list the options")
    fields["options"] = [{"id": each} if isinstance(each, str) else each for each in options]


def translate_policy(policy: Any) -> Any:
    """Reads `expire`, `escalate: ROLE` and `decide: OPTION`."""
    if policy == "expire":
        return TimeoutPolicy(expire=True)
    if isinstance(policy, str):
        raise InvalidInput(
            f"human step: on_timeout is {clip(policy)}; write expire, or an object with decide or"
            " escalate"
        )
    kept = dict(policy)
    if isinstance(kept.get("escalate"), str):
        kept["escalate"] = [kept["escalate"]]
    return kept


def check_spec(spec: HumanSpec) -> None:
    check_text("title", spec.title, MAX_TITLE)
    check_text("content", spec.content, MAX_CONTENT, least=0)
    check_fields(spec.input)
    check_options(spec)
    check_assignment(spec)
    check_timeout(spec)


def check_fields(fields: Mapping[str, InputField]) -> None:
    check_count("input", len(fields), MAX_FIELDS)
    for name, field in fields.items():
        check_name("input field", name)
        check_text(f"title of input {name}", field.title, MAX_LABEL, least=0)
        if field.default is not None:
            check_value(name, field, field.default)


def check_options(spec: HumanSpec) -> None:
    check_count("options", len(spec.options), MAX_OPTIONS)
    ids = [option.id for option in spec.options]
    for option in spec.options:
        check_name("option", option.id)
        check_text(f"label of option {option.id}", option.label, MAX_LABEL, least=0)
        if ids.count(option.id) > 1:
            raise InvalidInput(f"human step: option {option.id!r} is defined twice")
        for name in option.requires:
            if name not in spec.input:
                raise InvalidInput(
                    f"human step: option {option.id!r} requires the input {clip(name)},"
                    " which the form does not have"
                )


def check_assignment(spec: HumanSpec) -> None:
    for who in (*spec.assign.users, *spec.assign.roles):
        check_text("assign", who, 256)
    check_count("assign", len(spec.assign.users) + len(spec.assign.roles), MAX_ASSIGNED)
    check_number("approvals", spec.approvals, 1, MAX_APPROVALS, whole=True, needed=True)


def check_timeout(spec: HumanSpec) -> None:
    check_number("timeout", spec.timeout, 1, MAX_TIMEOUT_S)
    policy = spec.on_timeout
    chosen = [policy.decide is not None, bool(policy.escalate), policy.expire]
    if sum(chosen) != 1:
        raise InvalidInput(
            "human step: on_timeout needs exactly one of decide, escalate and expire"
        )
    if policy.decide is not None:
        find_option(spec, policy.decide)
    check_count("escalate", len(policy.escalate), MAX_ESCALATIONS)
    check_count("reminders", len(spec.reminders), MAX_REMINDERS)
    for seconds in spec.reminders:
        check_number("reminders", seconds, 1, MAX_TIMEOUT_S, needed=True)
    if policy.escalate and spec.timeout is None:
        raise InvalidInput("human step: escalate needs a timeout")


def check_count(field: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidInput(f"human step: {field} has {count} items; the limit is {most}")


def find_option(spec: HumanSpec, choice: str) -> DecisionOption:
    for option in spec.options:
        if option.id == choice:
            return option
    raise InvalidInput(
        f"{clip(choice)} is not an option of this step; choose one of"
        f" {', '.join(option.id for option in spec.options)}"
    )


def check_inputs(spec: HumanSpec, choice: str, inputs: Mapping[str, Any]) -> DecisionOption:
    """Returns the chosen option. Refuses unknown, missing and wrong inputs."""
    option = find_option(spec, choice)
    for name, value in inputs.items():
        field = spec.input.get(name)
        if field is None:
            known = ", ".join(spec.input) or "none"
            raise InvalidInput(f"unknown input {clip(name)}; this step takes {known}")
        check_value(name, field, value)
    always = [name for name, field in spec.input.items() if field.required]
    if missing := [name for name in (*always, *option.requires) if inputs.get(name) in (None, "")]:
        raise InvalidInput(f"option {choice!r} needs the input {missing[0]!r}")
    return option


def check_value(name: str, field: InputField, value: Any) -> None:
    if not has_type(field, value):
        raise InvalidInput(f"input {name!r} is {clip(value)}; it must be a {field.type}")
    if field.enum and value not in field.enum:
        choices = ", ".join(map(str, field.enum))
        raise InvalidInput(f"input {name!r} is {clip(value)}; it must be one of {choices}")
    if isinstance(value, str):
        check_text(f"input {name!r}", value, field.max_length or MAX_TEXT_INPUT, least=0)
        if field.format == "date" and value and not is_date(value):
            raise InvalidInput(f"input {name!r} is {clip(value)}; write a date as 2026-11-18")
    elif not isinstance(value, bool):
        least = field.minimum if field.minimum is not None else -(2**53)
        most = field.maximum if field.maximum is not None else 2**53
        check_number(f"input {name!r}", value, least, most)


def has_type(field: InputField, value: Any) -> bool:
    match field.type:
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)


def is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == len("2026-11-18")


def compute_digest(spec: HumanSpec) -> str:
    """Identifies what people saw when they decided."""
    return sha256(encode(spec)).hexdigest()
