"""The specification as a page: one file without network and script, for any screen, light and dark."""

import base64
import hashlib
from html import escape

from retrysafe._http.specification import Document
from retrysafe._http.specification_sections import (
    TITLE,
    Block,
    Cell,
    Code,
    Facts,
    Find,
    Shell,
    Steps,
    Strong,
    Table,
    Text,
    names_in,
    printable,
    sections,
)

_STYLE = """
:root{color-scheme:light dark;--text:#1d2430;--soft:#576274;--ground:#fff;--panel:#f4f6f9;--line:#dde2ea;
--mark:#fff2c2}
@media(prefers-color-scheme:dark){:root{--text:#e4e8ef;--soft:#a3adbd;--ground:#12161d;--panel:#1b212b;
--line:#2f3846;--mark:#463c12}}
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--text);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
main{max-width:62rem;margin:0 auto;padding:3rem 1.5rem 4rem}
h1{font-size:2.1rem;line-height:1.2;letter-spacing:-.02em;margin:0 0 .5rem}
h2{font-size:1.25rem;line-height:1.3;margin:2.75rem 0 .75rem}
p,ol{margin:.6rem 0;max-width:46rem}
ol{padding-left:1.4rem}
li{margin:.35rem 0}
.lead{color:var(--soft);font-size:1.1rem}
code,pre{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace}
code{font-size:.875em;background:var(--panel);border-radius:.25rem;padding:.1em .3em}
code.long{overflow-wrap:anywhere}
code.short{white-space:nowrap}
pre{background:var(--panel);border:1px solid var(--line);border-radius:.5rem;padding:1rem 1.15rem;
overflow-x:auto;font-size:.875rem;line-height:1.6;margin:1rem 0}
pre code{background:none;padding:0;font-size:inherit}
dl{margin:.75rem 0;display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;
border-top:1px solid var(--line)}
dt,dd{margin:0;padding:.55rem 0;border-bottom:1px solid var(--line)}
dt{color:var(--soft);padding-right:2rem}
table{width:100%;border-collapse:collapse;margin:1rem 0;font-size:.9375rem}
caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th,td{text-align:left;vertical-align:top;padding:.6rem 1.25rem .6rem 0;border-bottom:1px solid var(--line)}
th:last-child,td:last-child{padding-right:0}
thead th{color:var(--soft);font-weight:500;font-size:.875rem;border-bottom-width:2px}
tbody th{font-weight:400}
strong{font-weight:600}
td>span,th>span{display:block}
td>span+span,th>span+span{margin-top:.25rem}
tr:target>*{background:var(--mark)}
footer{margin-top:3rem;padding-top:1rem;border-top:1px solid var(--line);color:var(--soft);font-size:.9375rem}
@media(max-width:44rem){
main{padding:1.75rem 1rem 3rem}
h1{font-size:1.7rem}
dl{display:block}
dt{border:0;padding:.6rem 0 0;font-size:.875rem}
dd{padding:.1rem 0 .6rem}
thead{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
table,tbody,tr,th,td{display:block}
tr{border-bottom:1px solid var(--line);padding:.7rem 0}
tbody th,td{border:0;padding:.15rem 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;padding:.8rem}
code.short{white-space:normal;overflow-wrap:anywhere}
td::before{content:attr(data-column);display:block;color:var(--soft);font-size:.8125rem;margin-top:.3rem}
.named tbody th,.named th+td{display:inline-block;padding-right:.6rem;font-weight:600}
.named th+td::before{content:none}
}
"""

_SHORT = 48
"""Characters of a name that is not broken into lines; longer ones would make a column too wide."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing is loaded and nothing runs, whatever a name may have brought into the page."""


def page(document: Document) -> str:
    find = names_in(document)
    parts = [
        f"<section><h2>{escape(title)}</h2>{''.join(_block(block, find) for block in blocks)}</section>"
        for title, blocks in sections(document)
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{TITLE}</title><style>{_STYLE}</style></head><body><main><header><h1>{TITLE}</h1>"
        f'<p class="lead">{escape(document["summary"])}</p></header>{"".join(parts)}'
        f"<footer>{escape(document['forms'])}</footer></main></body></html>\n"
    )


def _block(block: Block, find: Find) -> str:
    match block:
        case str():
            return f"<p>{_text(block, find)}</p>"
        case Steps(texts):
            return f"<ol>{''.join(f'<li>{_text(text, find)}</li>' for text in texts)}</ol>"
        case Facts(rows):
            entries = (f"<dt>{escape(term)}</dt><dd>{_cell(cell, find)}</dd>" for term, cell in rows)
            return f"<dl>{''.join(entries)}</dl>"
        case Shell(command):
            return f'<pre tabindex="0"><code>{escape(command)}</code></pre>'
        case Table():
            return _table(block, find)


def _table(table: Table, find: Find) -> str:
    # On a narrow screen, a name in the second column belongs to the first.
    named = ' class="named"' if any(isinstance(row[1], Code) for row in table.rows) else ""
    # The roles are those that tables have anyway, until a narrow screen shows their rows as blocks.
    head = "".join(f'<th scope="col" role="columnheader">{escape(name)}</th>' for name in table.columns)
    anchors = table.anchors or [""] * len(table.rows)
    rows: list[str] = []
    for anchor, (first, *others) in zip(anchors, table.rows, strict=True):
        cells = "".join(
            f'<td role="cell" data-column="{escape(name)}">{_cell(cell, find)}</td>'
            for name, cell in zip(table.columns[1:], others, strict=True)
        )
        # What the `type` of a problem points to.
        id_ = f' id="{escape(anchor)}"' if anchor else ""
        rows.append(
            f'<tr role="row"{id_}><th scope="row" role="rowheader">{_cell(first, find)}</th>{cells}</tr>'
        )
    return (
        f'<table role="table"{named}><caption>{escape(table.caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table>'
    )


def _cell(cell: Cell, find: Find) -> str:
    if isinstance(cell, tuple):
        return "".join(f"<span>{_text(text, find)}</span>" for text in cell)
    return _text(cell, find)


def _text(text: Text, find: Find) -> str:
    if isinstance(text, Code):
        return _code(text)
    inline = "".join(
        _code(part) if isinstance(part, Code) else escape(printable(part)) for part in find(text)
    )
    return f"<strong>{inline}</strong>" if isinstance(text, Strong) else inline


def _code(text: str) -> str:
    kind = "short" if len(text) <= _SHORT else "long"
    return f'<code class="{kind}">{escape(printable(text))}</code>'
