"""How `make docs` builds the site: Sphinx with MyST, from pages that read as plain Markdown too.

Nothing is fetched: no intersphinx, no remote fonts, no analytics.
"""

import re
from importlib.metadata import version as installed_version
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

project = "retrysafe"
author = "the developers of retrysafe"
project_copyright = f"{author}; Apache-2.0"
version = release = installed_version("retrysafe")

extensions = ["myst_parser"]
exclude_patterns = ["**/.*"]

# Links to headings work as they do on a code host: `options.md#scopes`.
myst_heading_anchors = 4

html_theme = "furo"
html_title = f"retrysafe {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False

highlight_language = "text"

TOP_LEVEL = {"changelog": "CHANGELOG.md", "contributing": "CONTRIBUTING.md", "security": "SECURITY.md"}

_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_PAGE = re.compile(r"^- \[[^\]]+\]\(([^)#:]+)\.md\)", re.MULTILINE)


def _add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """The lists of links on the first page are the table of contents, so that it is written only once."""
    if name != app.config.root_doc:
        return
    _, *rest = _SECTION.split(source[0])
    for caption, text in zip(rest[::2], rest[1::2], strict=True):
        pages = "\n".join(_PAGE.findall(text))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"


def _show_file(app: Sphinx, name: str, source: list[str]) -> None:
    """A code host gets a link to these files, which live at the top; here they are pages."""
    if name in TOP_LEVEL:
        file = Path(app.srcdir).parent / TOP_LEVEL[name]
        app.env.note_dependency(str(file))
        source[0] = file.read_text(encoding="utf-8").replace("](docs/", "](")


def setup(app: Sphinx) -> None:
    app.connect("source-read", _add_contents)
    app.connect("source-read", _show_file)
    app.add_lexer("crontab", TextLexer)  # Pygments knows none
