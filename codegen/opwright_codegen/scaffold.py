"""Writes the files with which an author of an op begins.

They are a kernel to complete, a test with its golden file, and a project that builds,
tests and packs them. They are written once and belong to the author. A file that exists
is never changed.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opwright_codegen import golden, load, naming, native, shapes
from opwright_codegen.cxx_shapes import member
from opwright_codegen.format import format_source
from opwright_codegen.model import Op
from opwright_codegen.problems import OpdefError, Problem, SourceError

_IGNORED: Final = ("build/", "dist/", "wheelhouse/", "__pycache__/")


@dataclass(frozen=True)
class Project:
    """The project of an author.

    `folder`: the project's folder. `opdefs`: the folder of its opdefs. `package`: the
    package of its classes, which is in the folder `src`.
    """

    folder: Path
    opdefs: Path
    package: str

    @property
    def name(self) -> str:
        """The name of the library."""
        return self.package.replace(".", "_")

    @property
    def words(self) -> str:
        """The path of the folder of opdefs, quoted for the project's Makefile.

        Raises:
          SourceError: a Makefile cannot contain this path.
        """
        path = os.path.relpath(self.opdefs, self.folder)
        if not path.isprintable():
            raise SourceError(
                f"{self.opdefs}: no Makefile can name it; rename the folder, with"
                " letters, digits and spaces"
            )
        # Otherwise a name that begins with a dash would be an option of a command.
        path = f"./{path}" if path.startswith("-") else path
        return shlex.quote(path).replace("$", "$$")

    @property
    def place(self) -> str:
        """The path of the package's folder within the project."""
        return "/".join(("src", *self.package.split(".")))


def missing(
    opdef: Path, project: Project, *, cuda: bool = False, xla: bool = False
) -> dict[Path, bytes]:
    """The author's files that an op and its project lack, with their contents.

    Args:
      opdef: the path of the op's opdef, in a folder of opdefs.
      project: the project to which the files belong.
      cuda, xla: which kernels to write besides the one for the CPU.

    Raises:
      OpdefError: the opdef has mistakes.
      SourceError: the opdef is not in a folder of opdefs, or the project generates
        another package.
    """
    if opdef.suffix != ".yaml" or not project.opdefs.name:
        raise SourceError(
            f"{opdef}: an opdef lies in a folder of its group in one of opdefs, as"
            " my_opdefs/audio/MyOp.yaml"
        )
    others = _generated(project.folder / "Makefile")
    if others and project.package not in others:
        raise SourceError(
            f"{project.folder / 'Makefile'} generates the package"
            f" {' and '.join(others)}, not {project.package}; give --package"
            f" {others[0]}, or another project with --project"
        )
    op = _read(opdef)
    try:
        files = _files(op, project, cuda, xla)
    except ValueError as error:
        raise OpdefError([Problem(op.source, 1, 1, op.name, str(error))]) from error
    return {
        project.folder / name: text.encode()
        for name, text in files.items()
        if not (project.folder / name).exists()
    }


def unmet(opdef: Path, missing: Mapping[Path, bytes]) -> Iterator[str]:
    """A sentence for each condition that the arguments in a golden file do not meet.

    Args:
      opdef: the path of the op's opdef.
      missing: the files that are written for it.
    """
    paths = [path for path in missing if path.suffix == ".json"]
    if not paths:
        return
    for condition in golden.begun(_read(opdef))[1]:
        yield (
            f"{paths[0]}: its arguments do not meet the condition {condition!r} of the"
            " opdef; change them, or no test passes"
        )


def _read(opdef: Path) -> Op:
    """The op in an opdef.

    Raises:
      OpdefError: the opdef has mistakes.
    """
    content, problems = load.read_bytes(opdef)
    op = None
    if content is not None:
        op, problems = load.load_text(content, opdef)
    if op is None:
        raise OpdefError(problems)
    return op


def _generated(makefile: Path) -> list[str]:
    """The packages that the Makefile of a project generates, if it names any."""
    if not makefile.is_file():
        return []
    text = makefile.read_text("utf-8", "replace")
    return re.findall(r"^[^#\n]*--package[= ]+([A-Za-z_][\w.]*)", text, re.MULTILINE)


def _files(op: Op, project: Project, cuda: bool, xla: bool) -> dict[str, str]:
    """The contents of all files of the author, by their paths in the project."""
    facts = {
        "name": project.name,
        "place": project.place,
        "opdefs": project.words,
        "package": project.package,
        "project": project.package.partition(".")[0].replace("_", "-"),
        "top": project.package.partition(".")[0],
        "library": project.name,
        "opwright": _opwright(),
    }
    seen = native.view(op, project.opdefs) | _test_view(op)
    seen["begin"] = list(_begin(op, seen["types"]))
    stem = seen["stem"]
    files = {
        f"native/{stem}.cc": native.render("kernel.cc.jinja", op=seen),
        f"tests/test_{stem}.py": format_source(
            native.render("test.py.jinja", op=seen, **facts)
        ),
        f"tests/golden/{seen['file']}.json": golden.begun(op)[0],
        ".gitignore": "\n".join((*_IGNORED, f"/{project.place}/*.so", "")),
    }
    if cuda:
        seen |= _cuda_view(op, seen["types"])
        for suffix in ("_gpu.h", "_gpu.cu", "_gpu.cc"):
            template = f"kernel{suffix}.jinja"
            files[f"native/{stem}{suffix}"] = native.render(template, op=seen)
    if xla:
        files[f"native/{stem}_xla.cc"] = native.render("kernel_xla.cc.jinja", op=seen)
    names = ("CMakeLists.txt", "Makefile", "pyproject.toml", "hatch_build.py")
    files |= {name: native.render(f"{name}.jinja", **facts) for name in names}
    workflow = native.render("release.yml.jinja", **facts)
    files[".github/workflows/release.yml"] = workflow
    if "." in project.package:
        # The generated package is in a package of the author, which needs these files.
        files[f"src/{facts['top']}/__init__.py"] = ""
        files[f"src/{facts['top']}/py.typed"] = ""
    return files


def _opwright() -> str:
    """A requirement of opwright in the version that is installed, or a later one."""
    try:
        version = importlib.metadata.version("opwright")
    except importlib.metadata.PackageNotFoundError:
        return "opwright"
    return f"opwright>={'.'.join(version.split('.')[:3])}"


def _begin(op: Op, types: Sequence[str]) -> Any:
    """The first lines of a kernel: variables for its arguments and results.

    They are views of the tensors as flat arrays, or of a scalar its value.
    """
    for whose, args in (("arguments", op.inputs), ("results", op.outputs)):
        for index, arg in enumerate(args):
            name = member(arg.name)
            said = (
                "" if arg.shape is None else f", shape `{' '.join(arg.shape.split())}`"
            )
            yield f"// {arg.name}{said}"
            cxx = arg.type_attr if arg.type_attr in types else None
            cxx = cxx or native.TYPES.get(str(arg.dtype))
            if arg.is_list or cxx is None:
                continue
            of = f"{whose}.{name}"
            is_scalar = arg.shape is not None and arg.shape.strip() == "scalar"
            view = f"scalar<{cxx}>()()" if is_scalar else f"flat<{cxx}>()"
            if whose == "arguments":
                yield f"[[maybe_unused]] const auto {name} = {of}.{view};"
            elif native.is_made(op, arg):
                auto = "auto&" if is_scalar else "auto"
                yield f"[[maybe_unused]] {auto} {name} = {of}->{view};"
            else:
                yield "// Values decide its shape:"
                yield f"// tensorflow::Tensor* {name};"
                where = "..." if any(a.is_list for a in args[:index]) else index
                sizes = "tensorflow::TensorShape({...})"
                made = f"c->allocate_output({where}, {sizes}, &{name})"
                yield f"// TF_RETURN_IF_ERROR({made});"


#: The dtypes of generated kernels that CUDA code can compute with.
_CUDA: Final = (
    "float",
    "double",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


def _cuda_view(op: Op, types: Sequence[str]) -> dict[str, object]:
    """The arguments and results whose dtypes CUDA supports, as parameters."""
    rows: list[dict[str, str]] = []
    size = "1"
    for arg in (*op.inputs, *op.outputs):
        cxx = native.TYPES[arg.dtype] if arg.dtype in _CUDA else None
        cxx = arg.type_attr if arg.type_attr in types else cxx
        made = arg in op.outputs
        if arg.is_list or cxx is None or (made and not native.is_made(op, arg)):
            continue
        name = member(arg.name)
        tensor = f"results.{name}->" if made else f"arguments.{name}."
        if made and size == "1":
            size = f"{tensor}NumElements()"
        type_ = f"{cxx}*" if made else f"const {cxx}*"
        rows.append(
            {"name": name, "type": type_, "data": f"{tensor}flat<{cxx}>().data()"}
        )
    choices = [
        [native.TYPES[one] for one in op.attr(name).allowed or () if one in _CUDA]
        for name in types
    ]
    chosen = [dict(zip(types, row, strict=True)) for row in itertools.product(*choices)]
    return {"parameters": rows, "size": size, "chosen": chosen}


def _test_view(op: Op) -> dict[str, Any]:
    read = shapes.read(op)[0].inputs
    return {
        "group": op.group,
        "function": naming.function_name(op.name),
        "file": op.name.replace(">", "."),
        "refusing": [
            str(naming.argument(arg.name))
            for arg in op.inputs
            if not arg.is_list and "*" not in read.get(arg.name, "*")
            if "..." not in read[arg.name]
        ],
    }
