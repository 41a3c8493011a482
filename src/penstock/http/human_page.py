"""Renders the page behind a link: one human step as a form, without scripts."""

from base64 import b64encode
from datetime import UTC, datetime
from functools import cache, lru_cache
from hashlib import sha256
from html import escape

from markdown_it import MarkdownIt

from penstock.model.human import Approval, Decision, DecisionOption, HumanSpec, InputField
from penstock.model.message import Moment

STYLE = (
    "body{margin:0;background:#f7f8fa;color:#0f172a;"
    'font:16px/1.5 ui-sans-serif,system-ui,-apple-system,"Segoe UI",sans-serif}'
    "main{max-width:640px;margin:0 auto;padding:32px 20px}"
    "h1{font-size:22px;line-height:1.3;margin:0 0 16px}"
    ".text{background:#fff;border:1px solid #e5e9f0;border-radius:6px;padding:4px 16px;"
    "margin-bottom:24px;overflow-wrap:anywhere}"
    "label,legend{display:block;font-weight:600;margin:16px 0 4px}"
    ".hint{color:#475569;font-size:14px}"
    "input:not([type=checkbox]),select,textarea{box-sizing:border-box;width:100%;padding:8px;"
    "border:1px solid #d5dbe5;border-radius:6px;font:inherit;background:#fff;color:inherit}"
    "textarea{min-height:96px}.options{display:flex;flex-wrap:wrap;gap:12px;margin-top:24px}"
    "button{font:inherit;font-weight:600;padding:10px 20px;border-radius:6px;cursor:pointer;"
    "border:1px solid #d5dbe5;background:#fff;color:#0f172a}"
    "button.approve{background:#15803d;border-color:#15803d;color:#fff}"
    "button.reject{background:#c02626;border-color:#c02626;color:#fff}"
    "[role=alert]{background:#fef1f1;border:1px solid #c02626;border-radius:6px;padding:8px 16px}"
    "@media (prefers-color-scheme:dark){body{background:#0a0d13;color:#e7ecf4}"
    ".text,button,input:not([type=checkbox]),select,textarea{background:#0f131b;color:#e7ecf4;"
    "border-color:#2a3342}.hint{color:#a2aec0}[role=alert]{background:#220f12}a{color:#5b9bff}}"
)
STYLE_HASH = b64encode(sha256(STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'; form-action 'self';"
        " frame-ancestors 'none'; base-uri 'none'"
    ),
    "cache-control": "no-store",
    # A page without referrer would post the form with the origin "null", which is refused.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-robots-tag": "noindex, nofollow",
}
LINK_SCHEMES = ("http://", "https://", "mailto:")


@cache
def make_markdown() -> MarkdownIt:
    """Makes the renderer: no raw HTML, no images, links to web pages and mail addresses only."""
    reader = MarkdownIt("commonmark", {"html": False}).disable("image")
    # The method is part of its API and is meant to be replaced.
    setattr(reader, "validateLink", is_safe_link)  # noqa: B010
    return reader


def is_safe_link(url: str) -> bool:
    return url.strip().lower().startswith(LINK_SCHEMES)


# Pages ask for the open steps every few seconds.
@lru_cache(256)
def render_markdown(text: str) -> str:
    return str(make_markdown().render(text))


def render_form(spec: HumanSpec, nonce: str, problem: str = "") -> str:
    """Renders the open step. Each option is a button, so that only a click decides."""
    alert = f'<p role="alert">{escape(problem)}</p>' if problem else ""
    text = f'<div class="text">{render_markdown(spec.content)}</div>' if spec.content else ""
    fields = "".join(render_field(name, field) for name, field in spec.input.items())
    buttons = "".join(map(render_option, spec.options))
    return render_page(
        spec.title,
        f"{alert}{text}"
        f'<form method="post"><input type="hidden" name="nonce" value="{escape(nonce)}">{fields}'
        '<label for="comment">Comment</label>'
        '<textarea id="comment" name="comment" maxlength="4000"></textarea>'
        f'<div class="options">{buttons}</div></form>',
    )


def render_field(name: str, field: InputField) -> str:
    id = escape(f"input-{name}")
    label = escape(field.title or name)
    hint = f'<div class="hint">{escape(field.description)}</div>' if field.description else ""
    control = render_control(id, escape(f"input.{name}"), field)
    return f'<label for="{id}">{label}{" *" * field.required}</label>{hint}{control}'


def render_control(id: str, name: str, field: InputField) -> str:
    value = "" if field.default is None else escape(str(field.default))
    named = f'id="{id}" name="{name}"'
    if field.type == "boolean":
        checked = " checked" if field.default is True else ""
        return f'<input type="checkbox" {named} value="true"{checked}>'
    if field.enum:
        choices = "".join(render_choice(each, each == field.default) for each in field.enum)
        return f'<select {named}><option value=""></option>{choices}</select>'
    if field.format == "long":
        return f"<textarea {named}>{value}</textarea>"
    kind = {"date": "date", "text": "text", "long": "text"}[field.format]
    if field.type in ("number", "integer"):
        step = "1" if field.type == "integer" else "any"
        return f'<input type="number" step="{step}" {named} value="{value}">'
    return f'<input type="{kind}" {named} value="{value}">'


def render_choice(value: object, chosen: bool) -> str:
    text = escape(str(value))
    return f'<option value="{text}"{" selected" * chosen}>{text}</option>'


def render_option(option: DecisionOption) -> str:
    label = escape(option.label or option.id)
    return (
        f'<button class="{option.kind}" name="choice" value="{escape(option.id)}">{label}</button>'
    )


def render_decision(spec: HumanSpec, decision: Decision) -> str:
    """Renders what was decided, for a second visit."""
    label = escape(find_label(spec, decision.choice))
    who = "the timeout" if decision.timed_out else decision.by
    return render_page(
        spec.title,
        f"<p>Decided: <strong>{label}</strong>, by {escape(who)},"
        f" {format_moment(decision.at)}.</p>",
    )


def render_choice_made(spec: HumanSpec, approval: Approval) -> str:
    """Renders what this person chose, while other people have yet to agree."""
    label = escape(find_label(spec, approval.choice))
    return render_page(
        spec.title,
        f"<p>You chose <strong>{label}</strong>, {format_moment(approval.at)}."
        f" {spec.approvals} people must agree.</p>",
    )


def find_label(spec: HumanSpec, choice: str) -> str:
    return next((each.label for each in spec.options if each.id == choice), "") or choice


def render_note(title: str, text: str) -> str:
    return render_page(title, f"<p>{escape(text)}</p>")


def render_page(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


def format_moment(moment: Moment) -> str:
    return f"{datetime.fromtimestamp(moment // 1_000_000, UTC):%Y-%m-%d %H:%M UTC}"
