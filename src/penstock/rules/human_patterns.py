"""Rules: expands patterns of human steps. Parameters appear only in texts, as text."""

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from penstock.errors import InvalidInput
from penstock.model.human import HumanPattern, HumanSpec
from penstock.rules.human_spec import MAX_TITLE, parse_spec, translate_form
from penstock.rules.validation import check_name, check_text, clip

MAX_PARAMETER_LENGTH = 16_384
PARAMETER = re.compile(r"{{\s*([A-Za-z_][A-Za-z0-9_]{0,63})\s*}}")
NUMBER = re.compile(r"-?[0-9]{1,15}(\.[0-9]{1,15})?")
BRACES = re.compile(r"{{.*?(?:}}|$)", re.DOTALL)
# Markdown gives these characters a meaning, so values of parameters are escaped.
MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~&])")
LINE_BREAKS = re.compile(r"[\r\n]+")


def list_parameters(pattern: HumanPattern) -> list[str]:
    """Lists the parameters of a pattern in the order in which they appear."""
    texts = list_texts(pattern.spec)
    return list(dict.fromkeys(name for text in texts for name in PARAMETER.findall(text)))


def list_texts(spec: Mapping[str, Any]) -> list[str]:
    found = [spec.get("title"), spec.get("content"), spec.get("context")]
    form = translate_form(spec.get("input") or {})
    if isinstance(form, Mapping):
        found += [field.get("default") for field in form.values() if isinstance(field, Mapping)]
    return [text for text in found if isinstance(text, str)]


def check_pattern(pattern: HumanPattern) -> None:
    check_name("pattern", pattern.name)
    check_text("description", pattern.description, 1_000, least=0)
    for text in list_texts(pattern.spec):
        if found := BRACES.search(PARAMETER.sub("", text)):
            raise InvalidInput(
                f"pattern {pattern.name!r}: {clip(found[0])} is not a parameter; a parameter is a"
                " name of letters, digits and _, such as {{customer}}"
            )
    # Text and numbers fit it.
    expand(pattern, {name: "1" for name in list_parameters(pattern)})


def expand(pattern: HumanPattern, parameters: Mapping[str, Any]) -> HumanSpec:
    """Makes the spec of a step. Values are inserted once, as text that Markdown does not read."""
    known = list_parameters(pattern)
    if missing := [name for name in known if name not in parameters]:
        raise InvalidInput(f"pattern {pattern.name!r} needs the parameter {missing[0]!r}")
    if unknown := sorted(parameters.keys() - set(known)):
        raise InvalidInput(
            f"pattern {pattern.name!r} has no parameter {clip(unknown[0])}; it has"
            f" {', '.join(known) or 'none'}"
        )
    values = {name: read_value(name, parameters[name]) for name in known}
    spec = dict(pattern.spec)
    if isinstance(spec.get("title"), str):
        spec["title"] = insert(spec["title"], values)[:MAX_TITLE]
    for field in ("content", "context"):
        if isinstance(spec.get(field), str):
            escaped = {name: escape_markdown(value) for name, value in values.items()}
            spec[field] = insert(spec[field], escaped)
    if spec.get("input"):
        spec["input"] = insert_defaults(translate_form(spec["input"]), values)
    return replace(parse_spec(spec), pattern=f"{pattern.name}@{pattern.version}")


def read_value(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise InvalidInput(f"parameter {name!r} is {clip(value)}; it must be text or a number")
    text = str(value)
    check_text(f"parameter {name!r}", text, MAX_PARAMETER_LENGTH, least=0)
    return text


def insert(text: str, values: Mapping[str, str]) -> str:
    """Replaces each parameter once. What a value contains is not read again."""
    return PARAMETER.sub(lambda found: values[found[1]], text)


def insert_defaults(form: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: {**field, "default": insert_default(field, values)}
        if isinstance(field, Mapping) and isinstance(field.get("default"), str)
        else field
        for name, field in form.items()
    }


def insert_default(field: Mapping[str, Any], values: Mapping[str, str]) -> str | float:
    """Returns a number for a field that takes one. Other text is refused with the spec."""
    text = insert(field["default"], values)
    if field.get("type") not in ("number", "integer") or not NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)


def escape_markdown(value: str) -> str:
    return MARKDOWN.sub(r"\\\1", LINE_BREAKS.sub(" ", value))
