"""The command line: `opwright-codegen generate`, `import`, `diff` and others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from opwright_codegen import argument_types, groups, load
from opwright_codegen.generate import Report, Target, WorkerError, generate
from opwright_codegen.model import Op
from opwright_codegen.problems import OpdefError, Problem, SourceError, one_line
from opwright_codegen.release import command as release
from opwright_codegen.upgrade import command as upgrade
from opwright_notation.closed_pipe import drop_output

if TYPE_CHECKING:
    from opwright_codegen.importer import Imported
    from opwright_codegen.native import Report as NativeReport

_SOURCE = (
    "a folder of opdefs, 'installed' (TensorFlow's registry), 'opwright' (the opdefs"
    " that opwright is made of), a version of TensorFlow that it is for (2.20), or"
    " files, with commas between several: libraries (.so), saved lists of ops (.pb,"
    " .pb.xz, or text: .pbtxt), folders of these"
)

_EPILOG = """\
typical runs:
  opwright-codegen generate                 bring generated/opwright up to date
  opwright-codegen generate --check         fail, and say where, if it is not
  opwright-codegen lint                     check every opdef, print every problem
  opwright-codegen diff opwright installed  what TensorFlow adds and lacks

classes for the ops of a library of your own:
  opwright-codegen import --library ./libmy_ops.so --opdefs my_opdefs --group audio
  opwright-codegen generate --opdefs my_opdefs --output src --package mylib.ops \\
      --load ../libmy_ops.so --gradients ..gradients
  opwright-codegen diff old/libmy_ops.so ./libmy_ops.so

an op of your own, and the wheel of its library:
  opwright-codegen new my_opdefs/audio/MyOp.yaml --package mylib.ops
  opwright-codegen release --tensorflow 2.20 2.21
"""


#: The object of argparse to which subcommands are added.
_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns 0, or 1 if it failed or found problems or changes, or 2 for wrong arguments
    or sources.
    """
    parser = _parser()
    options, surplus = parser.parse_known_args(arguments)
    if surplus:
        parser.error(f"unrecognized arguments: {' '.join(surplus)}{_meant(surplus)}")
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        status = run(options)
        sys.stdout.flush()
        return status
    except OpdefError as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        writes = run is not _lint or options.fix
        rest = "; nothing was written" if writes else ""
        _say(f"{_count(len(error.problems), 'problem')}{rest}")
        return 1
    except BrokenPipeError:
        drop_output()
        return 1
    except SourceError as error:
        for reason in error.reasons:
            _say(reason)
        return 2
    except WorkerError as error:
        _say(f"{error}; run it again, with fewer --jobs if memory is short")
        return 1
    except OSError as error:
        where = f"{error.filename}: {error.strerror}" if error.filename else error
        _say(f"{where}; nothing more was done")
        return 1
    except KeyboardInterrupt:
        _say("interrupted; run it again to finish")
        return 130


def _meant(surplus: Sequence[str]) -> str:
    """A hint at the option for an argument that no command takes."""
    folder = next((one for one in surplus if Path(one).is_dir()), None)
    return "" if folder is None else f"; write --opdefs {folder} for the folder"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="opwright-codegen",
        description="YAML op definitions (opdefs) to typed Python classes.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    for add in (
        _add_generate,
        _add_native,
        _add_new,
        _add_import,
        _add_diff,
        _add_lint,
        _add_save,
        _add_since,
        _add_stubs,
        _add_upgrade,
        _add_release,
    ):
        add(commands)
    return parser


def _add_generate(commands: _Commands) -> None:
    command = commands.add_parser(
        "generate",
        help="classes from opdefs: only what changed",
        description=(
            "Brings a package of classes up to date with its opdefs. Files are"
            " written completely or not at all; those of ops that are gone are removed."
        ),
    )
    command.add_argument(
        "--output",
        type=Path,
        default=Path("generated"),
        metavar="DIR",
        help="folder that the package's folder lies in (default: generated)",
    )
    command.add_argument(
        "--package",
        metavar="NAME",
        type=argument_types.package,
        help="name of the package, as my_ops or mylib.ops (default: opwright)",
    )
    command.add_argument(
        "--load",
        metavar="LIBRARY",
        type=argument_types.library,
        help=(
            "what the package loads when it is imported: a file, relative to the"
            " package's folder, or a function, as mylib.native:load or ..native:load"
        ),
    )
    command.add_argument(
        "--gradients",
        metavar="MODULE",
        type=argument_types.module,
        help=(
            "module that registers gradients, which the package imports after its"
            " library, as mylib.gradients or ..gradients"
        ),
    )
    _check(command)
    command.add_argument(
        "--clean",
        action="store_true",
        help="generate everything anew, changed or not",
    )
    command.add_argument(
        "--jobs",
        type=argument_types.positive,
        metavar="N",
        help="processes (default: one a core)",
    )
    _opdefs(command)
    command.set_defaults(run=_generate)


def _add_native(commands: _Commands) -> None:
    command = commands.add_parser(
        "native",
        help="C++ from opdefs of your own: definitions, shapes, bases of kernels",
        description=(
            "Brings native/generated up to date: of each opdef its REGISTER_OP, a shape"
            " function made of its shapes, and the class that kernels derive from,"
            " which checks arguments."
        ),
    )
    _check(command)
    _opdefs(command)
    _project(command)
    command.set_defaults(run=_native)


def _add_new(commands: _Commands) -> None:
    command = commands.add_parser(
        "new",
        help="an op from its opdef: C++, a kernel to fill in, a test, a project",
        description=(
            "Generates C++ and classes of every opdef in the folder, and writes for the"
            " one given what its author begins with: a kernel, a test with its golden,"
            " CMakeLists.txt, Makefile, pyproject.toml. A file that exists stays."
        ),
    )
    command.add_argument(
        "opdef",
        metavar="OPDEF",
        type=Path,
        help="the op's opdef, my_opdefs/<group>/<OP_NAME>.yaml",
    )
    command.add_argument(
        "--package",
        required=True,
        metavar="NAME",
        type=argument_types.project_package,
        help="name of the package of classes, as my_ops or mylib.ops, in src",
    )
    command.add_argument(
        "--cuda",
        action="store_true",
        help="also a kernel for GPUs to fill in, which `make CUDA=ON` builds",
    )
    command.add_argument(
        "--xla",
        action="store_true",
        help="also a kernel for XLA to fill in, which jit_compile=True asks for",
    )
    _project(command)
    command.set_defaults(run=_new)


def _add_import(commands: _Commands) -> None:
    command = commands.add_parser(
        "import",
        help="opdefs from the installed TensorFlow or a custom-op library",
        description=(
            "Writes an opdef for every op of the source and renews the facts in"
            " those that exist; groups, documentation and other keys written by"
            " hand stay as they are."
        ),
    )
    command.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="PATH.so",
        help=(
            "import the ops of this library instead, or of a saved list of ops (.pb,"
            " .pbtxt), or of a folder of these; repeatable"
        ),
    )
    command.add_argument(
        "--group",
        type=argument_types.group,
        help=(
            "group of ops that have no opdef yet (default: that of the op's other"
            " versions, else the only one there is; of TensorFlow's ops core)"
        ),
    )
    command.add_argument(
        "--prune",
        action="store_true",
        help="remove the opdefs of ops that are gone; without, they are named",
    )
    _opdefs(command)
    command.set_defaults(run=_import)


def _add_diff(commands: _Commands) -> None:
    command = commands.add_parser(
        "diff",
        help="two sources of ops compared",
        description=(
            "Prints which ops and attrs were added, removed and changed from OLD to"
            " NEW, and which changes break callers. Exits 1 if any does."
        ),
    )
    command.add_argument("old", metavar="OLD", help=_SOURCE)
    command.add_argument("new", metavar="NEW", help="likewise")
    command.set_defaults(run=_diff)


def _add_lint(commands: _Commands) -> None:
    command = commands.add_parser(
        "lint",
        help="every problem in every opdef",
        description=(
            "Checks opdefs and prints every problem as file:line:column. If there are"
            " no others, it also prints keys that are on the wrong side of the line"
            " between imported facts and handwritten text."
        ),
    )
    command.add_argument(
        "--fix",
        action="store_true",
        help="add the line above imported facts, and reorder the rows of every file so "
        "that each key is on its side",
    )
    command.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="PATH.so",
        help=(
            "a library of these ops, which is loaded: ops without a shape function are"
            " warned of; repeatable"
        ),
    )
    _opdefs(command)
    command.set_defaults(run=_lint)


def _add_save(commands: _Commands) -> None:
    command = commands.add_parser(
        "save",
        help="an OpList to compare with later",
        description="Saves OpDefs of a source as an OpList (.pb, .pb.xz or .pbtxt).",
    )
    command.add_argument("source", metavar="SOURCE", help=_SOURCE)
    command.add_argument("file", metavar="FILE", type=Path)
    command.set_defaults(run=_save)


def _add_since(commands: _Commands) -> None:
    command = commands.add_parser(
        "since",
        help="which version of TensorFlow brought or dropped which op, attr and value",
        description=(
            "Compares versions of TensorFlow and writes into the opdefs which version"
            " brought each op, attr and allowed value that the oldest lacks ('since'),"
            " and which dropped each op and attr that the newest lacks ('dropped_in')."
            " The versions are those whose registries DIR/registries has, as"
            " 2.21.pb.xz, and those given."
        ),
    )
    command.add_argument(
        "versions",
        metavar="VERSION=SOURCE",
        nargs="*",
        type=argument_types.version,
        help=f"the oldest first, as 2.18=ops-2.18.pb; a SOURCE is {_SOURCE}",
    )
    _opdefs(command)
    command.set_defaults(run=_since)


def _opdefs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--opdefs",
        type=Path,
        default=Path("opdefs"),
        metavar="DIR",
        help="folder of opdefs, <group>/<OP_NAME>.yaml (default: opdefs)",
    )


def _check(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit 1 and name the files that are not as generated",
    )


def _project(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--project",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder of the project, which `native` lies in (default: the current one)",
    )


def _add_stubs(commands: _Commands) -> None:
    command = commands.add_parser(
        "stubs",
        help="stubs of tf.raw_ops for type checkers, in typeshed's form",
        description=(
            "Writes DIR/tensorflow with raw_ops.pyi, which types every op of"
            " tf.raw_ops, and with the other stubs of types-tensorflow, if it is"
            " installed: type checkers take all stubs of a package from one folder."
        ),
    )
    command.add_argument("--output", type=Path, required=True, metavar="DIR")
    command.add_argument(
        "--base",
        type=Path,
        metavar="STUBS",
        help=(
            "folder with the other stubs of TensorFlow (default: tensorflow-stubs of"
            " the installed types-tensorflow)"
        ),
    )
    command.set_defaults(run=_stubs)


def _add_upgrade(commands: _Commands) -> None:
    command = commands.add_parser(
        "upgrade",
        help="opdefs and classes of another version of TensorFlow, step by step",
        description=upgrade.DESCRIPTION,
        epilog=upgrade.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    upgrade.add(command)
    _opdefs(command)
    command.set_defaults(run=upgrade.run)


def _add_release(commands: _Commands) -> None:
    command = commands.add_parser(
        "release",
        help="one wheel of your project for several TensorFlows, tested with each",
        description=release.DESCRIPTION,
        epilog=release.EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    release.add(command)
    _project(command)
    command.set_defaults(run=release.run)


def _stubs(options: argparse.Namespace) -> int:
    from opwright_codegen import overlay

    folder = options.output / "tensorflow"
    base = options.base or overlay.installed()
    count = overlay.write_stubs(load.own_opdefs(), folder, base)
    others = "without other stubs" if base is None else f"the others from {base}"
    _say(f"{folder}: raw_ops.pyi with {_count(count, 'op')}; {others}")
    return 0


def _generate(options: argparse.Namespace) -> int:
    target = Target(
        options.opdefs,
        options.output,
        options.package or "opwright",
        options.load,
        options.gradients,
    )
    if target.package == "opwright" and (target.library or target.gradients):
        raise SourceError("--load and --gradients are for packages of your own")
    with _progress("Generating") as progress:
        report = generate(
            target,
            check=options.check,
            clean=options.clean,
            workers=options.jobs,
            progress=progress,
        )
    return _result(report, target.root, "generate", check=options.check)


def _result(
    report: Report | NativeReport, place: Path, command: str, *, check: bool
) -> int:
    """Says what a run of a command wrote, or with `check` would write; the status."""
    ops = _count(report.ops, "op")
    if not check:
        written = _count(len(report.written), "file")
        _say(f"{place}: {ops}, {written} written, {len(report.removed)} removed")
        return 0
    for path in report.written:
        _print(f"{path}: not as generated")
    for path in report.removed:
        _print(f"{path}: stale, no opdef")
    differing = len(report.written) + len(report.removed)
    if differing:
        changes = _count(differing, "file")
        _say(f"{changes} to change; run 'opwright-codegen {command}'")
        return 1
    _say(f"{place}: {ops}, all as generated")
    return 0


def _native(options: argparse.Namespace) -> int:
    from opwright_codegen import native

    report = native.generate(options.opdefs, options.project, check=options.check)
    _warn(report.unused)
    place = options.project / native.FOLDER
    return _result(report, place, "native", check=options.check)


def _new(options: argparse.Namespace) -> int:
    from opwright_codegen import native, scaffold, write

    opdefs = options.opdef.parent.parent
    project = scaffold.Project(options.project, opdefs, options.package)
    missing = scaffold.missing(
        options.opdef, project, cuda=options.cuda, xla=options.xla
    )
    native.generate(opdefs, options.project)
    for path, content in missing.items():
        write.write(path, content)
    library = f"lib{project.name}.so"
    target = Target(opdefs, options.project / "src", options.package, library)
    generate(target)
    for path in missing:
        _print(f"yours: {path}")
    _say(f"{options.project / native.FOLDER} and {target.root} are generated")
    _warn(scaffold.unmet(options.opdef, missing))
    yours = [path for path in missing if path.suffix in (".cc", ".cu", ".json")]
    if yours:
        _say(f"next: fill in {', '.join(map(str, yours))}; then run 'make'")
    return 0


def _import(options: argparse.Namespace) -> int:
    from opwright_codegen import importer, raw_ops, registry, sources

    if options.library:
        found, gradients = sources.read_files(options.library), {}
    else:
        found, gradients = sources.Files(registry.installed()), registry.gradients()
    if found.unread and options.prune:
        # The ops of unreadable libraries would seem to be removed.
        raise SourceError(*found.unread, "--prune wants all libraries to be read")
    done = importer.import_ops(
        found.op_defs,
        options.opdefs,
        options.group,
        prune=options.prune,
        gradients=gradients,
    )
    if not options.library and raw_ops.renew(options.opdefs, registry.raw_ops()):
        _print(f"updated {options.opdefs / load.RAW_OPS}")
    where = "these libraries" if options.library else "this TensorFlow"
    _tell_imported(done, "removed" if options.prune else f"not in {where}")
    _warn_without_shapes(options.library)
    for reason in found.unread:
        _say(reason)
    if done.added:
        _say(f"next: 'opwright-codegen lint --opdefs {options.opdefs}' lists the gaps")
    _say(
        f"{options.opdefs}: {len(done.added)} added, {len(done.updated)} updated,"
        f" {len(done.unchanged)} unchanged"
        + (f", {len(done.absent)} removed" if options.prune else "")
        + (f"; {_count(len(found.unread), 'file')} not read" if found.unread else "")
    )
    return 1 if found.unread else 0


def _tell_imported(done: Imported, gone: str) -> None:
    for what, paths in (("added", done.added), ("updated", done.updated)):
        for path in paths:
            _print(f"{what} {path}")
    for op, was, now in done.renamed:
        _print(f"{op}: {was} is now {now}, with what was written about it")
    for path in done.absent:
        _print(f"{gone}: {path}")
    _warn(done.skipped)


def _warn_without_shapes(libraries: Sequence[str]) -> int:
    """Warns of ops for which TensorFlow infers no shapes. Returns their number."""
    if not libraries:
        return 0
    from opwright_codegen import sources

    return _warn(
        f"{name}: TensorFlow infers no shape of any output, for inputs of any rank; add"
        " a shape function, .SetShapeFn(...), to its REGISTER_OP (if the rank of the"
        " outputs depends on values, UnknownShape is the right one: ignore this)"
        for name in sources.ops_without_shapes(libraries)
    )


def _diff(options: argparse.Namespace) -> int:
    from opwright_codegen import diff

    changes = diff.compare(_ops(options.old), _ops(options.new))
    for change in changes:
        breaks = " (breaks callers)" if change.breaks else ""
        _print(f"{change.op}: {change.kind} {change.what}{breaks}")
    breaking = sum(change.breaks for change in changes)
    _say(f"{_count(len(changes), 'change')}, {breaking} of which break callers")
    return 1 if breaking else 0


def _ops(source: str) -> list[Op]:
    from opwright_codegen import sources

    found, skipped = sources.ops(source)
    _warn(skipped)
    return found


def _warn(found: Iterable[object]) -> int:
    warnings = [f"warning: {one}" for one in found]
    for one in warnings:
        _say(one)
    return len(warnings)


def _lint(options: argparse.Namespace) -> int:
    from opwright_codegen import contents, form, write, written

    with _progress("Checking") as progress:
        ops, problems = load.load_all(options.opdefs, progress)
    problems += groups.read(options.opdefs, load.find(options.opdefs))[1]
    problems += [one for op in ops for one in written.misread_example(op)]
    if problems:
        raise OpdefError(problems)
    # opwright's own opdefs must be in the form of `form.py` and documented completely.
    # Other authors may leave out `form.LINE` and some keys.
    own = options.opdefs.resolve() == load.TREE.resolve()
    arranged: dict[Path, bytes] = {}
    unformed: list[Problem] = []
    stubs: list[Problem] = []
    for path in (Path(op.source) for op in ops):
        content = contents.of(path)
        text = form.arranged(content, path) if options.fix else content
        in_form = own or options.fix or form.has_line(text)
        (problems if in_form else unformed).extend(form.problems(text, path))
        stubs += written.stubs(text, path)
        if text != content:
            arranged[path] = text
    if problems:
        raise OpdefError(problems)
    for path, text in arranged.items():
        write.write(path, text)
        _print(f"in form now: {path}")
    # Each stub has a problem of its own, at its place.
    with_stubs = {stub.op for stub in stubs}
    missing = [
        one
        for op in ops
        if op.name not in with_stubs
        for one in written.missing(op, in_full=own)
    ]
    if stubs or (own and missing):
        raise OpdefError([*stubs, *(missing if own else ())])
    warnings = _warn([*unformed, *missing]) + _warn_without_shapes(options.library)
    found = f"0 errors, {_count(warnings, 'warning')}" if warnings else "no problems"
    _say(f"{options.opdefs}: {_count(len(ops), 'op')}, {found}")
    return 0


def _since(options: argparse.Namespace) -> int:
    from opwright_codegen import importer, registries, since

    if not since.in_order([version for version, _ in options.versions]):
        raise SourceError("versions must be different ones, the oldest first")
    history = registries.history(options.opdefs, dict(options.versions), _ops)
    changed, kept = importer.date_ops(history, options.opdefs)
    for path in changed:
        _print(f"updated {path}")
    dates = f"; {_count(kept, 'date')} kept that these versions do not tell"
    _say(f"{options.opdefs}: {len(changed)} updated{dates if kept else ''}")
    return 0


def _save(options: argparse.Namespace) -> int:
    from opwright_codegen import registry, sources, write

    # The order of a registry differs from process to process.
    op_defs = sorted(sources.op_defs(options.source), key=lambda op_def: op_def.name)
    write.write(options.file, registry.save(op_defs, options.file))
    _say(f"{options.file}: {_count(len(op_defs), 'op')}")
    return 0


@contextmanager
def _progress(title: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, once there is something to show."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _print(text: str) -> None:
    print(one_line(text))


def _say(text: str) -> None:
    print(one_line(f"opwright-codegen: {text}"), file=sys.stderr)
