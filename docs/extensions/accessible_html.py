"""A Sphinx extension: mends HTML of Sphinx's that screen readers trip over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx.writers.html5 import HTML5Translator

if TYPE_CHECKING:
    from sphinx.application import Sphinx


class AccessibleTranslator(HTML5Translator):
    """Marks no parameters as a list of terms, and no empty cells as headers."""

    def visit_desc_parameterlist(self, node: nodes.Element) -> None:
        begin = len(self.body)
        super().visit_desc_parameterlist(node)
        for at in range(begin, len(self.body)):
            self.body[at] = self.body[at].replace("<dl>", '<dl role="none">')

    def visit_entry(self, node: nodes.Element) -> None:
        super().visit_entry(node)
        if not node.astext():
            self.body[-1] = self.body[-1].replace("<th", "<td", 1)
            self.context[-1] = self.context[-1].replace("</th", "</td", 1)


def setup(app: Sphinx) -> dict[str, Any]:
    app.set_translator("html", AccessibleTranslator)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
