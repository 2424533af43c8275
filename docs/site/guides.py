"""The guides: pages of the repository, as they stand, with links that work here."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import markup
from layout import template
from pages import SOURCE

#: What is shown, in its order: the file, and its title in menus.
TITLES: Final = {
    "README.md": "Start",
    "docs/guide.md": "User guide",
    "docs/own_ops.md": "Ops of your own",
    "docs/libraries.md": "Libraries of ops",
    "docs/rnn.md": "Recurrent layers",
    "docs/rnn_keras.md": "Recurrent layers of Keras",
    "docs/rnn_kernels.md": "Recurrent kernels",
    "docs/embedding.md": "TPU embeddings",
    "docs/embedding_layers.md": "TPU embeddings: layers",
    "docs/embedding_steps.md": "TPU embeddings: steps",
    "docs/embedding_cores_and_hosts.md": "TPU embeddings: cores and hosts",
    "docs/embedding_serving.md": "TPU embeddings: serving",
    "docs/embedding_errors.md": "TPU embeddings: errors",
    "docs/embedding_ops.md": "TPU embeddings: ops",
    "docs/embedding_sparsecores.md": "SparseCore ops",
    "docs/scale.md": "Many hosts",
    "docs/tpu.md": "Programs for TPUs",
    "docs/gpu.md": "GPU",
    "docs/wheels.md": "Wheels",
    "docs/serving.md": "Serving",
    "docs/architecture.md": "Architecture",
    "docs/groups.md": "Groups of ops",
    "docs/benchmarks.md": "Benchmarks",
    "docs/glossary.md": "Glossary",
    "CHANGELOG.md": "Changes",
}


def address(file: str) -> str:
    """Where a guide's page lies: `guides/rnn.html`."""
    return f"guides/{Path(file).stem.lower()}.html"


def menu() -> list[tuple[str, str]]:
    """Where each guide lies, and its title."""
    return [(address(file), title) for file, title in TITLES.items()]


def pages(root: Path) -> Iterator[tuple[str, str]]:
    for file, title in TITLES.items():

        def link(target: str, file: str = file) -> str:
            path, mark, anchor = target.partition("#")
            found = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
            if found in TITLES:
                return f"../{address(found)}{mark}{anchor}"
            return f"{SOURCE}{found}{mark}{anchor}"

        body = markup.markdown((root / file).read_text("utf-8"), link)
        page = template("guide.html.jinja").render(title=title, body=body, root="../")
        yield address(file), page
