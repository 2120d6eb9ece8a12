"""What the site that `make docs` builds looks like, as far as its own style sheet decides it."""

import re

from tests.docs.pages import ROOT


def test_code_is_not_broken_inside_a_word() -> None:
    """`overflow-wrap: anywhere` in a table made columns so narrow that `abandoned` was two words."""
    css = (ROOT / "docs" / "_static" / "site.css").read_text(encoding="utf-8")
    rules = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    assert "td code" in rules
    assert not re.search(r"overflow-wrap:\s*anywhere|word-break:\s*break-|line-break:\s*anywhere", rules)
