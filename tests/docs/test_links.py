"""Every link leads somewhere, no page is forgotten, and none speaks of the machine it was written on."""

import re
from pathlib import PurePosixPath

import pytest

from tests.docs.pages import ROOT, Page, page, pages


def each_page() -> list[object]:
    return [pytest.param(page, id=name) for name, page in pages().items()]


@pytest.mark.parametrize("where", each_page())
def test_links(where: Page) -> None:
    """Files exist, and so do the headings in them."""
    broken = [link for link in where.links if not leads_somewhere(where, link)]
    assert broken == []


def leads_somewhere(where: Page, link: str) -> bool:
    if re.match(r"https?://", link):
        return True
    target, _, anchor = link.partition("#")
    file = (ROOT / where.name).parent / target if target else ROOT / where.name
    if not file.exists():
        return False
    name = str(PurePosixPath(file.resolve().relative_to(ROOT)))
    return not anchor or (name in pages() and anchor in page(name).anchors)


def test_every_page_is_on_the_first_one() -> None:
    """The first page of the site lists all others: its lists are the table of contents."""
    listed = {f"docs/{link}" for link in page("docs/index.md").links}
    assert listed == {name for name in pages() if name.startswith("docs/")} - {"docs/index.md"}


def test_the_readme_leads_to_every_page() -> None:
    """But for those that stand for a file at the top, which it links to itself."""
    linked = set(page("README.md").links)
    stands_for = {"docs/changelog.md": "CHANGELOG.md", "docs/contributing.md": "CONTRIBUTING.md"}
    stands_for["docs/security.md"] = "SECURITY.md"
    wanted = {stands_for.get(name, name) for name in pages() if name.startswith("docs/")}
    assert wanted - {"docs/index.md"} <= linked


@pytest.mark.parametrize("where", each_page())
def test_no_path_of_a_machine(where: Page) -> None:
    """Whoever reads it has another one."""
    assert re.findall(r"(?<![\w./:~])/(?:home|root|work|tmp|Users|opt|mnt)/\S*", where.text) == []


def test_contributing_fits_on_a_screen() -> None:
    """It is read by whoever wants to get on with it."""
    assert len(page("CONTRIBUTING.md").text.splitlines()) <= 50


def test_the_diagram_is_what_its_program_draws() -> None:
    """Whoever changes one has to look at the other."""
    import runpy

    drawn = runpy.run_path(str(ROOT / "docs/diagram.py"))["draw"]()
    assert (ROOT / "docs/how-it-works.svg").read_text(encoding="utf-8") == drawn
