"""Calls every op of `mine`, whichever version of its library is loaded, and says what
came of it: a JSON object. `python use_other_version.py LIBRARY`."""

from __future__ import annotations

import json
import sys
from typing import Any

import mine
import tensorflow as tf

from opwright_runtime import gencode
from opwright_runtime.api import Scope

tf.load_library(sys.argv[1])


def outcome(make: Any) -> str:
    try:
        made = make()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return str(
        tf.nest.map_structure(lambda x: getattr(x.numpy(), "tolist", x.numpy)(), made)
    )


def arguments(name: str) -> list[Any]:
    if name == "Documented":
        return ["a"]
    inputs = [name for name in mine.op_class(name).SCHEMA if "input" in name]
    return [1.5, 2][: len(inputs)]


def function(name: str) -> Any:
    cls = mine.op_class(name)
    module = sys.modules[cls.__module__]
    return getattr(module, cls.__module__.rpartition(".")[2])


def outcomes(name: str) -> dict[str, str]:
    given = arguments(name)
    cls = mine.op_class(name)
    ways = {
        "function": lambda: function(name)(*given),
        "again": lambda: function(name)(*given),
        "class": lambda: tuple(cls.create(Scope.current(), *given)._outputs()),
        "graph": lambda: tf.function(lambda: function(name)(*given))(),
    }
    return {way: outcome(make) for way, make in ways.items()}


results: dict[str, Any] = {name: outcomes(name) for name in mine.op_names()}
module = sys.modules[mine.op_class("Same").__module__]
results["fast"] = module.execute is gencode.execute
print(json.dumps(results))
