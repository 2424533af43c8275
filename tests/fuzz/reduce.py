"""Makes a scenario that fails smaller, and writes it down."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Plain = dict[str, Any]


def without(plain: Plain, dropped: set[int]) -> Plain | None:
    """The scenario without some calls and the calls that take their outputs."""
    kept: list[Plain] = []
    numbers: dict[int, int] = {}
    for i, call in enumerate(plain["calls"]):
        if i in dropped:
            continue
        inputs = {}
        for name, value in call.get("inputs", {}).items():
            ones = []
            for one in value if isinstance(value, list) else [value]:
                if "call" in one:
                    if one["call"] not in numbers:
                        break
                    one = {**one, "call": numbers[one["call"]]}
                ones.append(one)
            else:
                inputs[name] = ones if isinstance(value, list) else ones[0]
                continue
            break
        else:
            numbers[i] = len(kept)
            kept.append({**call, "inputs": inputs} if inputs else call)
    return {**plain, "calls": kept} if kept else None


def reduced(plain: Plain, fails: Callable[[Plain], bool], seconds: float) -> Plain:
    """As few calls as still fail."""
    end = time.monotonic() + seconds
    size = len(plain["calls"])
    while size >= 1:
        at = len(plain["calls"]) - size
        while at >= 0 and len(plain["calls"]) > 1:
            if time.monotonic() > end:
                return plain
            smaller = without(plain, set(range(at, at + size)))
            if (
                smaller
                and len(smaller["calls"]) < len(plain["calls"])
                and fails(smaller)
            ):
                plain = smaller
                at = min(at, len(plain["calls"])) - size
            else:
                at -= size
        size //= 2
    return plain


class Dumper(yaml.SafeDumper):
    """Messages are written line by line."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


Dumper.add_representer(str, _text)
STYLE: dict[str, Any] = {"sort_keys": False, "width": 100, "default_flow_style": None}


def write(folder: Path, signature: str, plain: Plain) -> Path:
    """Writes a file of the corpus, with the finding as its name."""
    op, kind, *_ = signature.split(": ")
    op = re.sub(r"(TPUEmbedding|Tensor|SparseCore|Xla|Batch|OfSparse)", "", op)
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{op}-{kind}").strip("-").lower()
    folder.mkdir(parents=True, exist_ok=True)
    number = 1
    while (path := folder / f"{words}-{number}.yaml").exists():
        number += 1
    text = yaml.dump({"found": signature, **plain}, Dumper=Dumper, **STYLE)
    path.write_text(text)
    return path
