"""The site, as `make site` builds it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support.places import ROOT, environment


def built(folder: Path) -> Path:
    """The folder of the site: OPWRIGHT_SITE, or one that this builds below `folder`.

    A warning of Sphinx, such as a broken reference, is an error.
    """
    if "OPWRIGHT_SITE" in os.environ:
        return Path(os.environ["OPWRIGHT_SITE"])
    output = folder / "site"
    options = ["-W", "--keep-going", "-j", "2", "-d", str(folder / "doctrees")]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(output)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    return output
