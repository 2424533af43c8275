"""Runs the notebooks of examples/, and keeps what their cells print.

Each cell prints the same on every machine. `--check` writes nothing, and fails where a
cell prints something else than the file says. The dependency group `notebooks` has what
it needs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
#: Seconds that a cell may take.
TIMEOUT = 300


def executed(path: Path) -> Any:
    """A notebook with what its cells print, without logs."""
    import nbformat
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        NotebookClient(notebook, timeout=TIMEOUT, resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        if cell.cell_type == "code":
            # A kernel may send what a cell prints in several parts.
            printed = "".join(one.text for one in cell.outputs if _is_stdout(one))
            output = nbformat.v4.new_output("stream", text=printed)
            cell.outputs = [output] if printed else []
    notebook.metadata.pop("language_info", None)
    return notebook


def _is_stdout(output: Any) -> bool:
    return bool(output.get("name") == "stdout")


def text(notebook: Any) -> str:
    import nbformat

    return str(nbformat.writes(notebook)).rstrip("\n") + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    differ = 0
    for path in NOTEBOOKS:
        made = text(executed(path))
        if made != path.read_text("utf-8"):
            differ += 1
            print(f"{path.name} prints something else than it says")
            if not check:
                path.write_text(made, "utf-8")
    return 1 if check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
