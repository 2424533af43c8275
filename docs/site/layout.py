"""The templates."""

from functools import cache
from pathlib import Path

import jinja2

HERE = Path(__file__).resolve().parent


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template(name: str) -> jinja2.Template:
    return _environment().get_template(name)
