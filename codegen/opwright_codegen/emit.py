"""Models to Python source: views, laid out by the templates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Final

import jinja2

from opwright_codegen import docs, literals, naming, skeleton, stubs, view
from opwright_codegen.model import Op

#: The number of the contract that generated code keeps with `opwright_runtime.gencode`.
ABI = 4


def op_source(op: Op, package: str = "opwright") -> str:
    """The unformatted source of the file of one op.

    Classes of a library's ops state the schema that they were generated for: any
    version of it may be loaded. opwright's own serve several versions of TensorFlow.
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

    `exports`: a module whose public names the package has besides its ops.
    `moved`: ops that lay in the group before, each with the group that they lie in now.
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
    """The unformatted source of an op's module in the group that it lay in before."""
    entry = _entry(op_name, _from(before, group))
    template = _environment().get_template("moved.py.jinja")
    return template.render(package=package, group=group, entry=entry)


def _entry(op_name: str, place: str) -> dict[str, str]:
    """What an op is called, and where it lies, seen from a group's package.

    Relative, so that a package works wherever it is put.
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
    """The package of the group `other`, seen from that of `group`."""
    return "." * (group.count(".") + 2) + other


def root_source(
    package: str, groups: Sequence[str], library: str | None, gradients: str | None
) -> str:
    """The unformatted source of the `__init__` of the top package.

    opwright's own also exports what users need of the runtime; the package of a
    custom-op author exports the ops alone, and loads their library.
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
    """The unformatted source of a module without ops, which exports another's names."""
    return (
        _environment()
        .get_template("module.py.jinja")
        .render(package=package, module=module, exports=exports)
    )


def command_source(package: str, source: str) -> str:
    """The unformatted source of what `python -m` runs, the `main` of another module."""
    template = _environment().get_template("command.py.jinja")
    return template.render(package=package, source=source)


def table_source(package: str, ops: Sequence[tuple[str, str]]) -> str:
    """The unformatted table of every op of a package: (OP_NAME, group) to class."""
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

    `keywords`: by op, the keywords by the OpDef's names, where they differ.
    """
    rows = [(name, sorted(words.items())) for name, words in sorted(keywords.items())]
    template = _environment().get_template("raw_ops.py.jinja")
    return template.render(package=package, keywords=rows)


def raw_ops_stub(package: str, stub: stubs.Stub) -> str:
    """The stub of the module of raw ops; `package` is empty for one of typeshed."""
    template = _environment().get_template("raw_ops.pyi.jinja")
    return template.render(package=package, stub=stub)


#: The sources of files that list ops, by the names that `generate` has for them.
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
