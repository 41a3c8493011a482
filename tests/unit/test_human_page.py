"""The page behind a link, and the link itself."""

import pytest

from penstock.errors import InvalidToken
from penstock.http.human_page import HEADERS, STYLE_HASH, render_decision, render_form
from penstock.model.human import Decision, HumanSpec
from penstock.rules.human_links import HumanLink, HumanLinks
from penstock.rules.human_spec import parse_spec

LINK = HumanLink("default", "default", 7, "ann", 10**15)
LINKS = HumanLinks(b"s" * 32)


def make_spec(content: str = "", **fields: object) -> HumanSpec:
    return parse_spec({"title": "Refund <5>?", "content": content, **fields})


@pytest.mark.parametrize(
    "content",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[click](javascript:alert(1))",
        "[click](data:text/html,x)",
        "![picture](https://example.org/x.png)",
        '"><script>',
    ],
)
def test_text_of_a_step_cannot_run_or_load_anything(content: str) -> None:
    page = render_form(make_spec(content), "nonce")
    for danger in ("<script", "<img", 'href="javascript', 'href="data'):
        assert danger not in page


def test_markdown_shows_links_to_pages_and_mail() -> None:
    page = render_form(make_spec("**Big** [page](https://a.org) [mail](mailto:a@b.org)"), "n")
    assert "<strong>Big</strong>" in page
    assert 'href="https://a.org"' in page
    assert 'href="mailto:a@b.org"' in page


def test_a_form_has_its_fields_and_one_button_for_each_option() -> None:
    form = {
        "why": {"type": "string", "format": "long", "default": "</textarea><script>"},
        "size": {"enum": ["a", "b"], "default": "b"},
        "sure": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
    }
    page = render_form(make_spec(input=form), "abc")
    assert "<h1>Refund &lt;5&gt;?</h1>" in page
    assert '<input type="hidden" name="nonce" value="abc">' in page
    assert "&lt;/textarea&gt;&lt;script&gt;</textarea>" in page
    assert '<option value="b" selected>' in page
    assert 'type="checkbox" id="input-sure" name="input.sure"' in page
    assert 'type="date"' in page
    assert page.count("<button") == 2
    assert "autofocus" not in page


def test_the_page_allows_its_own_style_and_nothing_else() -> None:
    policy = HEADERS["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{STYLE_HASH}'")
    assert "script" not in policy


def test_a_second_visit_shows_the_decision() -> None:
    page = render_decision(make_spec(), Decision(choice="approve", by="<ann>", at=0))
    assert "<strong>Approve</strong>, by &lt;ann&gt;, 1970-01-01 00:00 UTC" in page


def test_a_link_is_valid_for_its_step_and_options_only() -> None:
    spec = make_spec()
    token = LINKS.make(LINK, spec)
    assert LINKS.read(token) == LINK
    LINKS.verify(token, spec)
    for wrong, other in (
        (token, make_spec(decision=["approve", "keep"])),
        (HumanLinks(b"t" * 32).make(LINK, spec), spec),
        (
            LINKS.make(HumanLink("default", "default", 8, "ann", 10**15), spec)[:22] + token[22:],
            spec,
        ),
    ):
        with pytest.raises(InvalidToken):
            LINKS.verify(wrong, other)


@pytest.mark.parametrize("extra", ["!", "=", "\n", "%20"])
def test_a_link_has_one_spelling(extra: str) -> None:
    token = LINKS.make(LINK, make_spec())
    with pytest.raises(InvalidToken):
        LINKS.read(token + extra)


@pytest.mark.parametrize("token", ["", "x", "é", "a" * 3_000, "AAAA"])
def test_a_text_that_is_no_link_is_refused(token: str) -> None:
    with pytest.raises(InvalidToken):
        LINKS.read(token)
