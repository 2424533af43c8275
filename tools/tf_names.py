"""Which ops TensorFlow's public functions run: `tf.nn.softmax` -> Softmax.

    python tools/tf_names.py            writes search/tf_names.json of the runtime
    python tools/tf_names.py --check    says whether it would change

Functions are called, and what they run is recorded: `ran` in the table (`tf_calls`).

Classes, methods and functions that no call suits are looked up in the sources of
TensorFlow's wheel: `read` in the table. Their ops are those of `gen_*_ops` that they
name; where they name none, those of the functions that they call, and so on.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / name) for name in ("runtime", "codegen")]

import tensorflow as tf
import tf_calls
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.util import tf_decorator

from opwright_codegen import load, write

OUTPUT = ROOT / "runtime/opwright_runtime/search/tf_names.json"
#: How far from a public function its ops may be called.
DEPTH = 6
#: What calls more of them is a program of its own.
MOST = 24
#: Not TensorFlow's functions: names for types, other libraries, every op under its own.
LEFT_OUT = ("tf.raw_ops", "tf.keras", "tf.dtypes.", "tf.compat.v1", "tf.compat.v2")

#: A definition: its module's file, and its name in it, `Dataset.batch`.
Place = tuple[Path, str]


@dataclass
class Module:
    """A file: what it defines, and what names in it stand for."""

    definitions: dict[str, ast.AST] = field(default_factory=dict)
    #: Local name -> dotted name of a module, or of a name in one.
    imports: dict[str, str] = field(default_factory=dict)


@cache
def module(path: Path) -> Module:
    found = Module()
    tree = ast.parse(path.read_text("utf-8", "replace"))
    for node in ast.walk(tree):
        # Those within functions too, which break import circles.
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found.imports[alias.asname or alias.name] = (
                    f"{node.module}.{alias.name}"
                )
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.asname:
                    found.imports[alias.asname] = alias.name
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.definitions[node.name] = node
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    found.definitions[f"{node.name}.{method.name}"] = method
        if isinstance(node, ast.Assign):
            # `sort = tf_export("sort")(sort)`, tables of functions, and the like.
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.definitions.setdefault(target.id, node.value)
    return found


@cache
def file_of(dotted: str) -> Path | None:
    """The file of a module of TensorFlow's."""
    if not dotted.startswith("tensorflow.python"):
        return None
    folder = Path(tf.__file__).parent.joinpath(*dotted.split(".")[1:])
    for path in (folder.with_suffix(".py"), folder / "__init__.py"):
        if path.is_file():
            return path
    return None


@cache
def ops_of(path: Path) -> Mapping[str, str]:
    """The ops of a generated module, by the names of its functions."""
    if not path.name.startswith("gen_"):
        return {}
    return dict(_FUNCTION.findall(path.read_text("utf-8")))


#: A function of a generated module, and the op that it executes.
_FUNCTION = re.compile(
    r"^def (\w+)\((?:(?!^def ).)*?_op_def_library\._apply_op_helper\(\s*\"([\w>]+)\"",
    re.MULTILINE | re.DOTALL,
)


def referred(place: Place) -> Iterator[Place]:
    """The definitions that a definition names."""
    path, name = place
    here = module(path)
    node = here.definitions.get(name)
    if isinstance(node, ast.ClassDef):
        # Who names a class may make one of it, or only look whether something is one.
        yield path, f"{name}.__init__"
        return
    cls = name.partition(".")[0] if "." in name else None
    for each in run_by(node):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            owner = each.value.id
            if owner in ("self", "cls") and cls:
                yield path, f"{cls}.{each.attr}"
            elif owner in here.imports:
                other = file_of(here.imports[owner])
                if other is not None:
                    yield other, each.attr
        elif isinstance(each, ast.Name) and each.id != name:
            if each.id in here.definitions:
                yield path, each.id
            elif each.id in here.imports:
                owner, _, attr = here.imports[each.id].rpartition(".")
                other = file_of(owner)
                if other is not None:
                    yield other, attr


def run_by(node: ast.AST | None) -> Iterator[ast.AST]:
    """What a definition runs: not its annotations, decorators and defaults."""
    body = node.body if isinstance(node, ast.FunctionDef) else [node] if node else []
    for statement in body:
        yield from ast.walk(statement)


def ops_behind(places: Sequence[Place]) -> list[str]:
    """The ops that are nearest to definitions, in the order in which they are named."""
    level, seen = list(places), set(places)
    for _ in range(DEPTH):
        found = [ops_of(path)[name] for path, name in level if name in ops_of(path)]
        if found:
            every = list(dict.fromkeys(found))
            return every if len(every) <= MOST else []
        following = [other for one in level for other in referred(one)]
        level = [one for one in dict.fromkeys(following) if one not in seen]
        seen.update(level)
    return []


def public(
    owner: ModuleType, prefix: str, seen: set[int]
) -> Iterator[tuple[str, object]]:
    """TensorFlow's public functions and classes by name, each module once."""
    if id(owner) in seen:
        return
    seen.add(id(owner))
    for name in sorted(vars(owner)):
        dotted = f"{prefix}.{name}"
        if name.startswith("_") or dotted.startswith(LEFT_OUT):
            continue
        try:
            value = getattr(owner, name)
        except Exception:
            continue
        if isinstance(value, ModuleType):
            if "_api" in value.__name__:
                yield from public(value, dotted, seen)
        elif callable(value):
            yield dotted, value
            if inspect.isclass(value):
                for method, function in sorted(vars(value).items()):
                    if not method.startswith("_") and inspect.isroutine(function):
                        yield f"{dotted}.{method}", function


def places_of(dotted: str, value: object) -> Iterator[list[Place]]:
    """Where a function is defined; of a class, its `__init__`, then all its methods."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    _, target = tf_decorator.unwrap(value)
    target = inspect.unwrap(target) if callable(target) else target
    module_name = getattr(target, "__module__", None)
    name = getattr(target, "__qualname__", None)
    path = file_of(module_name) if isinstance(module_name, str) else None
    if path is None or not isinstance(name, str) or "<locals>" in name:
        return
    if dotted.startswith("tf.Variable"):
        # Which is the class of these, and has no methods of its own.
        path = Path(resource_variable_ops.__file__)
        name = name.replace("Variable", "BaseResourceVariable", 1)
    if not inspect.isclass(target):
        yield [(path, name)]
        return
    yield [(path, f"{name}.__init__")]
    methods = [one for one in module(path).definitions if one.startswith(f"{name}.")]
    yield [(path, one) for one in methods]


@dataclass
class Names:
    """Ops by public name: how functions ran, what others' sources name."""

    ran: dict[str, list[tf_calls.Way]] = field(default_factory=dict)
    read: dict[str, list[str]] = field(default_factory=dict)


def names() -> Names:
    known = set(map(load.op_name_of, load.find(ROOT / "opdefs")))
    found = Names()
    functions: dict[str, Any] = {}
    for dotted, value in public(tf, "tf", set()):
        several = map(ops_behind, places_of(dotted, value))
        behind = [op for op in next(filter(None, several), []) if op in known]
        if not behind:
            continue
        if is_generated(value):
            found.ran[dotted] = [tuple(behind)]
            continue
        found.read[dotted] = behind
        if is_function(dotted):
            functions[dotted] = value
    for dotted, ways in tf_calls.ways(functions, known).items():
        found.ran[dotted] = ways
        del found.read[dotted]
    return found


def is_generated(value: object) -> bool:
    """Whether it is an op's own function, of a module `gen_*_ops`."""
    return getattr(value, "__module__", "").rpartition(".")[2].startswith("gen_")


def is_function(dotted: str) -> bool:
    """Whether a name is a function's: not a class's, nor a method's."""
    owner: object = tf
    for part in dotted.split(".")[1:]:
        owner = getattr(owner, part)
        if inspect.isclass(owner):
            return False
    return True


def table(entries: Mapping[str, object]) -> str:
    """An entry a line, for diffs."""
    rows = (
        f"{json.dumps(name)}: {json.dumps(entries[name])}" for name in sorted(entries)
    )
    return "{\n" + ",\n".join(rows) + "\n}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    found = names()
    text = f'{{\n"ran": {table(found.ran)},\n"read": {table(found.read)}\n}}\n'.encode()
    same = OUTPUT.exists() and OUTPUT.read_bytes() == text
    if not same and not options.check:
        write.write(OUTPUT, text)
    print(
        f"{len(found.ran)} functions that ran, {len(found.read)} names that were read, "
        f"{'as before' if same else 'changed'}"
    )
    return 1 if options.check and not same else 0


if __name__ == "__main__":
    sys.exit(main())
