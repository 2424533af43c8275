"""Renders Python source from models, by views and templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

import jinja2

from opwright_codegen import docs, literals, naming, skeleton, stubs, view
from opwright_codegen.model import Op

#: The number of the contract between generated code and `opwright_runtime.gencode`.
ABI = 6


def op_source(op: Op, package: str = "opwright") -> str:
    """The unformatted source of the file of one op.

    Classes of a library's ops have the schema for which they were generated, because
    another version of the library may be loaded. opwright's own classes have none,
    because they work with several versions of TensorFlow.
    """
    found = view.op_view(op, states_schema=package != "opwright")
    return _environment().get_template("op.py.jinja").render(op=found)


def group_source(
    package: str,
    group: str,
    line: str | None,
    exports: str | None,
    op_names: Sequence[str],
    moved: Sequence[tuple[str, str]],
    subpackages: Sequence[str],
) -> str:
    """The unformatted source of the `__init__` of a group's package.

    `exports`: the name of a module whose public names the package also exports.
    `moved`: ops that were in the group before, each with its present group.
    """
    return (
        _environment()
        .get_template("group.py.jinja")
        .render(
            package=package,
            group=group,
            doc=docs.group(f"{package}.{group}", line, len(op_names), len(moved)),
            entries=[_entry(name, "") for name in op_names],
            moved=[_entry(name, _from(group, target)) for name, target in moved],
            subpackages=subpackages,
            exports=exports,
        )
    )


def moved_source(package: str, before: str, op_name: str, group: str) -> str:
    """The unformatted source of an op's module in the group in which it was before."""
    entry = _entry(op_name, _from(before, group))
    template = _environment().get_template("moved.py.jinja")
    return template.render(package=package, group=group, entry=entry)


def _entry(op_name: str, place: str) -> dict[str, str]:
    """The names of an op and its module's path, relative to a group's package.

    The path is relative, so that the top package may be in any other package.
    """
    module = naming.module_name(op_name)
    return {
        "op": op_name,
        "module": module,
        "path": f"{place}.{module}",
        "cls": naming.class_name(op_name),
        "function": naming.function_name(op_name),
    }


def _from(group: str, other: str) -> str:
    """The package of the group `other`, relative to that of `group`."""
    return "." * (group.count(".") + 2) + other


def root_source(
    package: str, groups: Sequence[str], library: str | None, gradients: str | None
) -> str:
    """The unformatted source of the `__init__` of the top package.

    opwright's own package also exports public names of the runtime. The package of a
    custom-op author exports only ops, and loads their library.
    """
    return (
        _environment()
        .get_template("package.py.jinja")
        .render(
            package=package,
            groups=groups,
            is_opwright=package == "opwright",
            abi=ABI,
            library=library,
            gradients=gradients,
        )
    )


def module_source(package: str, module: str, exports: str) -> str:
    """The unformatted source of a module that exports another module's names."""
    return (
        _environment()
        .get_template("module.py.jinja")
        .render(package=package, module=module, exports=exports)
    )


def command_source(package: str, source: str) -> str:
    """The unformatted source of `__main__`, which calls `main` of another module."""
    template = _environment().get_template("command.py.jinja")
    return template.render(package=package, source=source)


def table_source(package: str, ops: Sequence[tuple[str, str]]) -> str:
    """The unformatted source of the table of all ops of a package.

    `ops` has pairs of OP_NAME and group.
    """
    rows = [
        (
            name,
            f".{group}.{naming.module_name(name)}",
            naming.class_name(name),
        )
        for name, group in sorted(ops)
    ]
    return (
        _environment().get_template("table.py.jinja").render(package=package, rows=rows)
    )


def raw_ops_source(package: str, keywords: Mapping[str, Mapping[str, str]]) -> str:
    """The unformatted source of the module of raw ops.

    `keywords`: for each op, the keywords that differ from the OpDef's names. The keys
    are the OpDef's names.
    """
    rows = [(name, sorted(words.items())) for name, words in sorted(keywords.items())]
    template = _environment().get_template("raw_ops.py.jinja")
    return template.render(package=package, keywords=rows)


def raw_ops_stub(package: str, stub: stubs.Stub) -> str:
    """The stub of the module of raw ops. `package` is empty for typeshed's stub."""
    template = _environment().get_template("raw_ops.pyi.jinja")
    return template.render(package=package, stub=stub)


#: The functions above for files that list ops, by the names that `generate` uses.
SHARED: Final[Mapping[str, Callable[..., str]]] = {
    "package": root_source,
    "table": table_source,
    "group": group_source,
    "moved": moved_source,
    "module": module_source,
    "command": command_source,
    "raw_ops": raw_ops_source,
}


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(skeleton.TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quoted"] = lambda value: literals.quoted(str(value))
    return environment
