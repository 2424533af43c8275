"""Text to HTML: what opdefs say, code, and the guides' Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup
from mdit_py_plugins.anchors import anchors_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonConsoleLexer, PythonLexer, get_lexer_by_name
from pygments.util import ClassNotFound

#: What tells an op's name from a word: capitals or digits within.
_NAME = re.compile(r"\b[A-Z][A-Za-z0-9]*[a-z0-9][A-Z0-9][A-Za-z0-9]*\b|\b[A-Z][a-z]+\b")
_WORDS = frozenset({"All", "Any", "For", "If", "Size", "Where", "While"})
_SENTENCE = re.compile(r"(?:^|[.:;!?]\s+|\n\n)$")


#: What the highlighter made, within the element that Markdown has for code.
_WRAPPED = re.compile(
    r"<pre><code[^>]*>(<div class=.code.>.*?</div>\n?)</code></pre>", re.DOTALL
)


def highlight_styles() -> str:
    """The colours of code, by day and by night."""
    day = _styles("xcode")
    night = _styles("github-dark")
    return f"{day}\n@media (prefers-color-scheme: dark) {{\n{night}\n}}\n"


def _styles(name: str) -> str:
    made: str = HtmlFormatter(style=name).get_style_defs(".code")  # type: ignore[no-untyped-call]
    return made


def code(text: str, lexer: str = "python") -> Markup:
    """Highlighted code."""
    found = {"python": _python, "pycon": _console}.get(lexer)
    if found is None:
        try:
            chosen = get_lexer_by_name(lexer)
        except ClassNotFound:
            plain = f'<pre tabindex="0">{html.escape(text)}</pre>'
            return Markup(f'<div class="code">{plain}</div>')
    else:
        chosen = found()
    made = highlight(text, chosen, HtmlFormatter(cssclass="code"))
    # What scrolls has to be reached by keyboard.
    return Markup(made.replace("<pre>", '<pre tabindex="0">', 1))


@cache
def _python() -> PythonLexer:
    return PythonLexer()


@cache
def _console() -> PythonConsoleLexer:
    return PythonConsoleLexer()


def inline(text: str, ops: Collection[str], own: str) -> Markup:
    """A sentence: backquoted words as code, names of other ops as links."""
    parts = re.split(r"`([^`]*)`", text)
    made = []
    for at, part in enumerate(parts):
        if at % 2:
            made.append(f"<code>{html.escape(part)}</code>")
        else:
            made.append(_linked(part, ops, own))
    return Markup("".join(made))


def _linked(text: str, ops: Collection[str], own: str) -> str:
    made, end = [], 0
    for found in _NAME.finditer(text):
        name = found[0]
        if name not in ops or name == own:
            continue
        if name[1:].islower() and _is_word(text, found):
            continue
        made.append(html.escape(text[end : found.start()]))
        made.append(f'<a href="{name}.html">{name}</a>')
        end = found.end()
    made.append(html.escape(text[end:]))
    return "".join(made)


def _is_word(text: str, name: re.Match[str]) -> bool:
    """Whether a name is a word: "All of them" has one, "Mean divides" none."""
    if not _SENTENCE.search(text[: name.start()]):
        return False
    return name[0] in _WORDS or not re.match(r" [a-z]+s\b", text[name.end() :])


def prose(text: str, ops: Collection[str], own: str) -> Markup:
    """A description: paragraphs, formulas and lists that keep their lines."""
    made = []
    for block in text.strip("\n").split("\n\n"):
        rows = block.split("\n")
        if not block.strip():
            continue
        if rows[0].startswith(("  ", "|")):
            made.append(f'<pre class="formula" tabindex="0">{html.escape(block)}</pre>')
        elif rows[0].startswith("- "):
            items = re.split(r"\n- ", block[2:])
            texts = (inline(" ".join(item.split()), ops, own) for item in items)
            made.append("<ul>" + "".join(f"<li>{one}</li>" for one in texts) + "</ul>")
        else:
            made.append(f"<p>{inline(' '.join(block.split()), ops, own)}</p>")
    return Markup("\n".join(made))


def markdown(text: str, link: Callable[[str], str]) -> str:
    """A page of the guides; `link` says where a relative address leads."""
    parser = MarkdownIt("commonmark", {"html": False}).enable(
        ["table", "strikethrough"]
    )
    parser.use(anchors_plugin, max_level=4)
    parser.options["highlight"] = lambda body, lang, _: str(code(body, lang or "text"))
    tokens = parser.parse(text)
    for token in tokens:
        for child in token.children or ():
            for name in ("href", "src"):
                address = child.attrGet(name)
                if isinstance(address, str) and not re.match(r"[a-z]+:|#", address):
                    child.attrSet(name, link(address))
    made: str = parser.renderer.render(tokens, parser.options, {})
    made = _WRAPPED.sub(r"\1", made).replace("<th></th>", "<td></td>")
    return made.replace("<table>", '<div class="wide" tabindex="0"><table>').replace(
        "</table>", "</table></div>"
    )
