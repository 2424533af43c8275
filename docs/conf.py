"""The site, for Sphinx: `make site`."""

from __future__ import annotations

import sys
from pathlib import Path

from opwright_runtime import __version__

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "opwright"
author = "The opwright authors"
project_copyright = f"{author}, Apache 2.0. TensorFlow is a trademark of Google."
version = release = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "accessible_html",
    "op_pages",
    "repository_links",
]
exclude_patterns = ["extensions"]

# `#` links lead to headings, as on GitHub.
myst_heading_anchors = 4

default_role = "code"
# Names and code in plain text keep their quotes and dashes.
smartquotes = False
add_module_names = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 80
autodoc_typehints = "signature"

# Every reference has to lead somewhere, but to the type variables of signatures, to the
# tuples that functions return, to names that annotations of the runtime quote, and to
# other projects, whose inventories take a network.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"(?:.*\.)?[TUV]\d?|[TU][A-Za-z]\w*|\w+Outputs"),
    ("py:(?:class|exc)", "Argument|Blocker|Compilation|Control|TpuCheckError"),
    ("py:class", r"(?:collections|np|numpy|os|tensorflow|tf)\..*"),
]

html_theme = "pydata_sphinx_theme"
html_title = "opwright"
html_favicon = "favicon.svg"
html_static_path = ["static"]
html_css_files = ["figures.css", "copy_code.css"]
html_js_files = ["copy_code.js"]
html_context = {"default_mode": "auto"}
html_theme_options = {
    "collapse_navigation": True,
    "navigation_depth": 1,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "search_bar_text": "Search: running total, MatMul, tf.nn.softmax",
    "secondary_sidebar_items": ["page-toc"],
}
# A sidebar of all ops takes longer than the rest of a page. Breadcrumbs lead to the
# group, whose page lists its ops.
html_sidebars = {"ops/*": []}
html_copy_source = False
html_show_sourcelink = False
# The search has all that the index has.
html_use_index = False
html_domain_indices = False
