"""A Sphinx extension: links from pages to files of the repository that are no pages.

On GitHub a relative link leads to any file. On the site it leads to the file on GitHub.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[2]
SOURCE: Final = "https://github.com/opwright/opwright/blob/main/"


#: Files outside of the folder of sources that a page includes.
_INCLUDED: Final = {"README.md": "index", "CHANGELOG.md": "reference/changelog"}


class RepositoryLinks(SphinxTransform):
    """Replaces references to such files and folders; a broken link stays one."""

    # Before Sphinx copies files that are linked, as downloads.
    default_priority = 1

    def apply(self, **kwargs: Any) -> None:
        for kind in (addnodes.pending_xref, addnodes.download_reference):
            for node in list(self.document.findall(kind)):
                if node.get("reftype") == "myst":
                    self._replace(node)

    def _replace(self, node: nodes.Element) -> None:
        path, _, anchor = node["reftarget"].partition("#")
        if node["refdomain"] == "doc":
            if path in self.env.found_docs:
                return
            path, anchor = f"{path}.md", node["reftargetid"] or ""
        found = self._file(path)
        if found in _INCLUDED:
            node["refdomain"] = "doc"
            node["reftarget"] = _INCLUDED[found]
            node["reftargetid"] = anchor or None
        elif found is not None:
            address = f"{SOURCE}{found}#{anchor}" if anchor else f"{SOURCE}{found}"
            node.replace_self(nodes.reference("", "", *node.children, refuri=address))

    def _file(self, path: str) -> str | None:
        """The file or folder that a link leads to, relative to the root."""
        page = Path(self.env.doc2path(self.env.docname))
        # Links in an included file are relative to the root.
        for folder in (page.parent, ROOT):
            found = (folder / path).resolve()
            if path and found.exists() and found.is_relative_to(ROOT):
                return found.relative_to(ROOT).as_posix()
        return None


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
