"""`GET /idempotency`: which form a client is sent, with which headers, and that no text breaks one."""

import base64
import hashlib
import re
import time
from html import escape
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retrysafe import scopes
from retrysafe._core.problems import COMMON
from retrysafe._http.publish import FORMS, HTML, JSON, MARKDOWN, negotiate
from retrysafe._http.routes import Protected
from retrysafe.policy import Wire
from tests.core.published import document, get, in_force, markdown, page
from tests.core.test_specification import EVERYTHING
from tests.core.values import the_rules

CHROME = (
    b"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,"
    b"application/signed-exchange;v=b3;q=0.7"
)


@pytest.mark.parametrize(
    ("accept", "form"),
    [
        ((), HTML),
        ((b"",), HTML),
        ((b"*/*",), HTML),
        ((CHROME,), HTML),
        ((b"application/json",), JSON),
        ((b"Application/JSON",), JSON),
        ((b"application/json; charset=utf-8",), JSON),
        ((b"application/*",), JSON),
        ((b"text/*",), HTML),
        ((b"text/markdown",), MARKDOWN),
        ((b"text/markdown, */*;q=0.1",), MARKDOWN),
        ((b"text/markdown, text/html, */*",), HTML),  # all the same to the client: the preferred one
        ((b"application/json, text/plain, */*",), HTML),
        ((b"application/json, */*;q=0.8",), JSON),
        ((b"text/html;q=0.5, application/json;q=0.6",), JSON),
        ((b"text/html;q=0.5;q=1, application/json;q=0.6",), JSON),  # the first weight is the weight
        ((b"text/html;q=0, */*",), MARKDOWN),
        ((b"text/*;q=0, */*",), JSON),
        ((b"text/*;q=0.1, text/markdown;q=0, */*;q=0.5",), JSON),  # the most specific counts, not the first
        ((b"text/html;level=1;q=0.1, text/html, application/json;q=0.5",), HTML),
        ((b"text/html;q=0.4, application/json;q=0.50",), JSON),
        ((b"text/html;q=0.1", b"application/json"), JSON),  # two lines are one list
        # What cannot be satisfied gets the default, and not a 406.
        ((b"image/png",), HTML),
        ((b"text/html;q=0, text/markdown;q=0, application/json;q=0",), HTML),
        ((b"*/*;q=0",), HTML),
        ((b"application/problem+json",), HTML),
        ((b"application/json-patch+json",), HTML),
        # What is not a media range is passed over, and the rest counts.
        ((b"application/json;q=2",), HTML),
        ((b"application/json;q=-1, text/markdown;q=.5, text/markdown;q=0.4",), MARKDOWN),
        ((b"application/json;q=nan",), HTML),
        ((b"text/html, image/gif, *; q=.2, */*; q=.2",), HTML),  # Java's
        ((b"*/json, application/json",), JSON),
        ((b'text/html;x=",application/json,";q=0.1, text/markdown;q=0.2',), MARKDOWN),
        ((b'text/html;x="\\",application/json", text/markdown;q=0.2',), HTML),
        ((b'application/json;x="open, text/html',), JSON),
        ((b", ,application/json,;,",), JSON),
        ((b"\xff\xfe\x00, application/json",), JSON),
    ],
)
def test_negotiation(accept: tuple[bytes, ...], form: str) -> None:
    """RFC 9110 section 12.5.1: weights, wildcards, and the most specific range."""
    assert negotiate(accept, FORMS) == form
    response = get(the_rules(), *((b"accept", line) for line in accept))
    assert response.status == 200
    assert dict(response.headers)[b"content-type"].startswith(form.encode())


@given(st.lists(st.binary(max_size=200), max_size=4))
@example([b'"' + b'\\"' * 100])
@example([b"a/b;q=" + b"9" * 100])
def test_no_bytes_break_it(accept: list[bytes]) -> None:
    """Whatever is sent, one of the forms is chosen."""
    assert negotiate(accept, FORMS) in FORMS


@given(
    st.lists(
        st.sampled_from(
            [
                *(form.encode() for form in FORMS),
                b"*/*",
                b"text/*",
                b";q=",
                b"0",
                b"1",
                b".5",
                b",",
                b";",
                b'"',
                b"\\",
            ]
        ),
        max_size=30,
    )
)
def test_no_pieces_break_it(pieces: list[bytes]) -> None:
    """The same for what looks like a list of media ranges."""
    assert negotiate([b"".join(pieces)], FORMS) in FORMS


@pytest.mark.parametrize("piece", [b'"\\', b'\\"', b",", b";", b"a/b,", b'""a', b"a/b;q=0.1,", b'"'])
def test_a_long_line_takes_no_longer_than_it_is(piece: bytes) -> None:
    """64 KiB, as servers allow: each byte is looked at once."""
    line = piece * (65536 // len(piece))
    used = []
    for _ in range(5):
        began = time.process_time()
        assert negotiate([line], FORMS) in FORMS
        used.append(time.process_time() - began)
    assert min(used) < 0.1


@pytest.mark.parametrize("form", FORMS)
def test_headers(form: str) -> None:
    """Caches are told that forms differ and to ask again; no form is taken for another."""
    told = dict((response := get(the_rules(), (b"accept", form.encode()))).headers)
    assert told[b"content-length"] == b"%d" % len(response.body)
    assert told[b"vary"] == b"accept"
    assert told[b"cache-control"] == b"no-cache"
    assert told[b"x-content-type-options"] == b"nosniff"
    assert (b"content-security-policy" in told) is (form == HTML)


@pytest.mark.parametrize("form", FORMS)
def test_head(form: str) -> None:
    """The same headers, and no body."""
    whole, head = (get(the_rules(), (b"accept", form.encode()), method=method) for method in ("GET", "HEAD"))
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")


def test_what_a_client_has_is_not_sent_again() -> None:
    """An entity tag for each form, which changes with the rules."""
    tags = {form: dict(get(the_rules(), (b"accept", form.encode())).headers)[b"etag"] for form in FORMS}
    assert len(set(tags.values())) == 3
    html = tags[HTML]
    for given_tag in (html, b"W/" + html, b'"other", ' + html, b"*"):
        again = get(the_rules(), (b"if-none-match", given_tag))
        assert (again.status, again.body) == (304, b"")
        assert dict(again.headers) == {b"vary": b"accept", b"etag": html, b"cache-control": b"no-cache"}
    assert get(the_rules(), (b"if-none-match", tags[JSON])).status == 200
    assert get(the_rules(required=True), (b"if-none-match", html)).status == 200
    assert get(the_rules(), (b"if-none-match", b"\xff,,")).status == 200


# --- the page


class Reader(HTMLParser):
    """Collects tags, and complains about those that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.styles: list[str] = []

    @property
    def tags(self) -> set[str]:
        return {tag for tag, _ in self.elements}

    def values(self, name: str) -> list[str]:
        return [value for _, found in self.elements if (value := found.get(name)) is not None]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] == ["style"]:
            self.styles.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def test_anchors() -> None:
    """The `type` of each problem leads to one place, and that is its row."""
    rows = [
        found for tag, found in read(page(the_rules(**EVERYTHING))).elements if tag == "tr" and "id" in found
    ]
    assert sorted(str(row["id"]) for row in rows) == sorted(COMMON)


def test_the_page_is_accessible() -> None:
    """A language, a title, one first heading, others below it, tables with captions and headers."""
    routes = [Protected("/orders", the_rules(required=True))]
    reader = read(page(in_force(the_rules(**EVERYTHING), routes)))
    assert ("html", {"lang": "en"}) in reader.elements
    tags = [tag for tag, _ in reader.elements]
    assert tags.count("h1") == tags.count("title") == tags.count("main") == 1
    assert set(re.findall("h[1-6]", " ".join(tags))) == {"h1", "h2"}
    assert tags.count("table") == tags.count("caption") == tags.count("thead") == 5
    headers = [found for tag, found in reader.elements if tag == "th"]
    assert {found.get("scope") for found in headers} == {"row", "col"}
    # On a narrow screen rows are blocks, which would not be a table any more without these.
    roles = {"table": "table", "tr": "row", "td": "cell", "thead": "rowgroup", "tbody": "rowgroup"}
    assert all(found.get("role") == roles[tag] for tag, found in reader.elements if tag in roles)
    assert all(found.get("tabindex") == "0" for tag, found in reader.elements if tag == "pre")


def luminance(colour: str) -> float:
    digits = colour if len(colour) == 6 else "".join(digit * 2 for digit in colour)
    parts = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast() -> None:
    """At least 4.5 to 1 between text and what is behind it, light and dark (WCAG 2.2, 1.4.3)."""
    [style] = read(page(the_rules())).styles
    light, dark = (
        dict(re.findall(r"--(\w+):#(\w+)", block)) for block in re.findall(r":root\{([^}]*)\}", style)
    )
    for colours in (light, dark):
        for text in ("text", "soft"):
            for behind in ("ground", "panel", "mark"):
                pair = sorted([luminance(colours[text]), luminance(colours[behind])])
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (text, behind)


def test_the_page_needs_nothing_and_runs_nothing() -> None:
    """No script, no frame, no form, no address that is loaded; and its policy allows the one style alone."""
    response = get(the_rules())
    reader = read(response.body.decode())
    assert not reader.tags & {"script", "link", "img", "iframe", "form", "object", "base", "a"}
    assert not reader.values("src") + reader.values("href") + reader.values("style")
    [style] = reader.styles
    assert "url(" not in style
    assert "@import" not in style
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = dict(response.headers)[b"content-security-policy"].decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}';" in policy


# --- one document in three forms


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", "", html.partition("</style>")[2]))


def leaves(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for found in value.values() for text in leaves(found)]
    if isinstance(value, list):
        return [text for found in value for text in leaves(found)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("options", [{}, EVERYTHING, {"effects": "database"}, {"effects": "repeatable"}])
def test_the_forms_say_the_same(options: dict[str, Any]) -> None:
    """Each sentence of the document is on the page and in the Markdown."""
    routes = [Protected("/other", the_rules(retention="3d", fingerprint="json"))]
    published = in_force(the_rules(**options), routes)
    said = document(published)
    shown = text_of(page(published)).replace("&#x27;", "'").replace("&quot;", '"')
    plain = markdown(published).replace("`", "").replace("&#95;", "_")
    for sentence in leaves(said):
        if " " in sentence and not sentence.startswith("KEY="):
            assert sentence in shown, sentence
            assert sentence in plain, sentence
    assert said["example"]["command"] in markdown(published)


HOSTILE = [
    '"><script>alert(1)</script>&',
    "'; DROP TABLE users --",
    "a|b|c",
    "`code` and ``more``",
    "![x](javascript:alert(1)) [y](z)",
    "**bold** _it_ <b>",
    "line\nbreak\r\n\n## Heading",
    "\x1b[31mred\x00\u202eright to left",
    "back\\slash\\|",
    "lone \udcff surrogate",
    "{{7*7}} ${x} %s {0}",
    "&amp; &#124; &lt;",
]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_paths(hostile: str) -> None:
    """A path is a path in every form: no markup, no new cell, no heading, no control character (CWE-79)."""
    path = f"/{hostile}"
    routes = [Protected(path, the_rules(required=True)), Protected("/plain", the_rules())]
    published = in_force(the_rules(), routes)
    assert document(published)["routes"][0]["path"] == path
    harmless = in_force(the_rules(), [Protected("/x", the_rules(required=True)), *routes[1:]])
    ours, theirs = (read(page(it)) for it in (harmless, published))
    assert [tag for tag, _ in ours.elements] == [tag for tag, _ in theirs.elements]
    ours_lines, lines = (markdown(it).splitlines() for it in (harmless, published))
    assert [line[:2] for line in ours_lines] == [line[:2] for line in lines]
    [row] = [line for line in lines if line.startswith("| POST") and "/plain" not in line]
    assert row.count("|") == 5  # four cells, as of any other route
    for text in (page(published).replace("\n", ""), *lines):
        assert text.isprintable()


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_texts(hostile: str) -> None:
    """The same for a text that an application gave one of its problems, whatever it quotes."""
    rules = the_rules(Wire(details={"in-flight": hostile}))
    plain = the_rules(Wire(details={"in-flight": "text"}))
    assert document(rules)["problems"]["in-flight"]["detail"] == hostile
    ours, theirs = (read(page(it)) for it in (plain, rules))
    assert [tag for tag, _ in ours.elements] == [tag for tag, _ in theirs.elements]
    [row] = [line for line in markdown(rules).splitlines() if "| `in-flight`" in line]
    assert row.count("|") == 5
    assert row.isprintable()
    assert "](" not in row
    assert not re.search("<(?!br>)", row)


@pytest.mark.parametrize("name", ["a|b|c", "`code`", "**bold**_it_", "X-'$HOME'&#~", "Key", "in-flight"])
def test_hostile_names(name: str) -> None:
    """A header may have any name that is a token (RFC 9110 section 5.6.2)."""
    rules, plain = the_rules(Wire(key_header=name, echo_key=True)), the_rules(Wire(echo_key=True))
    assert name in document(rules)["headers"]
    assert escape(name) in page(rules)
    ours, theirs = (read(page(it)) for it in (plain, rules))
    assert ours.tags == theirs.tags
    rows = [line.count("|") for line in markdown(rules).splitlines() if line.startswith("|")]
    assert rows == [line.count("|") for line in markdown(plain).splitlines() if line.startswith("|")]


def test_names_that_no_header_has() -> None:
    """Nor would markup get through that a wire refuses anyway."""
    hostile = '"><script>alert(1)</script>&'
    wire = Wire()._replace(key_header=hostile, body_header=hostile, replayed_header=hostile)
    text = page(the_rules()._replace(wire=wire))
    assert "script" not in read(text).tags
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in text


def test_markdown_marks_what_is_typed() -> None:
    """Names of headers and problems are code, in sentences too, and whole: not a part of a longer word."""
    text = markdown(the_rules(Wire(key_header="X-Request-Key"), scope=scopes.header("X-Tenant")))
    assert "in the header `X-Request-Key` with" in text
    assert "`Idempotent-Replayed: true`" in text
    assert "the problem `in-flight`, 409 with `Retry-After`" in text
    assert "``" not in text.replace("```", "")
