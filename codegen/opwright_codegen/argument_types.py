"""Types of the command line's arguments: each returns the value or says what it wants.

Errors: argparse.ArgumentTypeError, which argparse prints with the argument's name.
"""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from opwright_codegen import load, packages


def package(name: str) -> str:
    if why := packages.refusal(name):
        raise argparse.ArgumentTypeError(f"{name!r} {why}")
    return name


def project_package(name: str) -> str:
    if why := packages.project_refusal(package(name)):
        raise argparse.ArgumentTypeError(f"{name!r} {why}")
    return name


def module(name: str) -> str:
    if _is_dotted(name.lstrip(".")):
        return name
    raise argparse.ArgumentTypeError(
        f"{name!r} is no module, as mylib.gradients, ..gradients beside the package,"
        " or .gradients in it"
    )


def library(text: str) -> str:
    where, is_function, function = text.partition(":")
    if is_function:
        if _is_dotted(where.lstrip(".")) and _is_dotted(function):
            return text
        raise argparse.ArgumentTypeError(
            f"{text!r} is no function, as mylib.native:load or ..native:load"
        )
    if text and not Path(text).is_absolute():
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} must be relative to the package's folder, or the package would work"
        " on this machine only"
    )


def _is_dotted(name: str) -> bool:
    parts = name.split(".")
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in parts)


def group(name: str) -> str:
    if re.fullmatch(load.GROUP, name):
        return name
    raise argparse.ArgumentTypeError(
        f"{name!r} is no group: a package's name in lower case, as nn or data"
    )


def version(text: str) -> tuple[str, str]:
    version, _, source = text.partition("=")
    if source and re.fullmatch(load.VERSION, version):
        return version, source
    raise argparse.ArgumentTypeError(f"{text!r} is no VERSION=SOURCE: 2.18=ops.pb")


def positive(text: str) -> int:
    if text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
