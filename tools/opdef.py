"""For writers of opdefs: facts on an op, and whether its opdef is right.

    python tools/opdef.py facts MatMul             what a writer has to know
    python tools/opdef.py check MatMul             every check, with file:line
    python tools/opdef.py check --group linalg     those that are written, of a group
    python tools/opdef.py check --fill MatMul      first writes what the example prints
    python tools/opdef.py report                   how far all of it is, by group

Names may be those of files: opdefs/linalg/MatMul.yaml. Checks read the opdefs; an
example runs what is generated, which takes no `make ops` unless facts changed.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The kernels that tests run with.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [
    str(ROOT / name) for name in ("generated", "runtime", "codegen", "tests")
]

from opwright_codegen import dump, load, naming, write
from opwright_codegen.model import Arg, Attr, Op, Role

OPDEFS = ROOT / "opdefs"
SAMPLES = ROOT / "tests" / "support" / "equivalence" / "samples"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; 1 if a check found something."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["facts", "check", "report"])
    parser.add_argument("ops", nargs="*", metavar="OP", help="OP_NAME, or a file")
    parser.add_argument("--group", help="every op of a group")
    parser.add_argument(
        "--all", action="store_true", help="check ops without an example as well"
    )
    parser.add_argument(
        "--fill",
        action="store_true",
        help="write what the examples print, and lay the files out",
    )
    parser.add_argument(
        "--text", action="store_true", help="facts with TensorFlow's own text"
    )
    options = parser.parse_intermixed_args(arguments)
    if options.command == "report":
        return _report()
    paths = list(_paths(options.ops, options.group))
    if options.command == "facts":
        for path in paths:
            _print_facts(_loaded(path), text=options.text)
        return 0
    return _check(paths, every=options.all or not options.group, fill=options.fill)


def _paths(names: Sequence[str], group: str | None) -> Iterator[Path]:
    files = {load.op_name_of(path): path for path in load.find(OPDEFS)}
    for name in names:
        stem = load.op_name_of(Path(name)) if name.endswith(".yaml") else name
        if stem not in files:
            sys.exit(f"opdef.py: no opdef of {stem}")
        yield files[stem]
    if group is not None:
        found = [path for path in files.values() if path.parent.name == group]
        if not found:
            sys.exit(f"opdef.py: no group {group}")
        yield from found


def _loaded(path: Path) -> Op:
    op, problems = load.load_text(path.read_bytes(), path)
    if op is None:
        sys.exit("\n".join(map(str, problems)))
    return op


# Facts.


def _print_facts(op: Op, *, text: bool) -> None:
    import opwright
    from opwright_runtime import kernels
    from opwright_runtime.search import tf_names
    from support.equivalence import registry

    cls = opwright.op_class(op.name)
    definition = registry.op_def(op.name)
    print(f"{op.name}  {Path(op.source).relative_to(ROOT)}")
    print(f"  {naming.function_name(op.name)} in opwright.{op.group}")
    for arg in op.inputs:
        print(f"  input   {_arg(arg)}")
    for arg in op.outputs:
        print(f"  output  {_arg(arg)}")
    for attr in op.attrs:
        print(f"  {_ROLES[op.role(attr)]} {_attr(attr)}")
    flags = [
        word
        for word, flag in (
            ("stateful", op.is_stateful),
            ("commutative", op.is_commutative),
            ("aggregate", op.is_aggregate),
            ("refs, graphs only", registry.has_refs(definition)),
            ("removed from graphs of today", registry.is_removed(definition)),
        )
        if flag
    ]
    if flags:
        print(f"  is      {', '.join(flags)}")
    if op.deprecation is not None:
        print(
            f"  gone in GraphDef {op.deprecation.version}: {op.deprecation.explanation}"
        )
    rows = kernels.kernels(op.name)
    for device, words in kernels.served(rows):
        print(f"  kernel  {device}: {words}")
    if op.tpu_only:
        print(f"  TPU only: {op.tpu_only}")
    if op.name not in registry.ops_with_cpu_kernel():
        print("  kernel  none for the CPU here: its example is type-checked, not run")
    if op.name in registry.differentiable_ops():
        print("  gradient: registered")
    elif op.name in registry.ops_with_gradient():
        print("  gradient: registered as not differentiable")
    for name, ops in tf_names.names().items():
        if op.name in ops:
            print(f"  used by {name}")
    for place in _samples(op.name):
        print(f"  called  {place}")
    if text:
        print("  TensorFlow's text, to learn from and not to copy:")
        print(
            "\n".join(f"    {row}" for row in (cls.tensorflow_doc() or "").split("\n"))
        )
    print()


_ROLES = {
    Role.INFERRED: "inferred",
    Role.ARGUMENT: "argument",
    Role.KEYWORD: "keyword ",
    Role.OPTION: "option  ",
}


def _arg(arg: Arg) -> str:
    kind = str(arg.dtype or arg.type_attr or f"list of {arg.type_list_attr}")
    count = f" x {arg.count}" if arg.count else ""
    shape = f"  shape: {arg.shape}" if arg.shape else ""
    return f"{arg.name}: {'ref ' if arg.is_ref else ''}{kind}{count}{shape}"


def _attr(attr: Attr) -> str:
    words = [f"{attr.name}: {attr.kind}"]
    if attr.default is not None:
        words.append(f"= {attr.default!r}")
    if attr.minimum is not None:
        words.append(f">= {attr.minimum}")
    if attr.allowed is not None:
        words.append(f"of {', '.join(attr.allowed)}")
    return " ".join(words)


def _samples(op_name: str) -> Iterator[str]:
    """Programs of the tests that call an op: where an example can start from."""
    for path in sorted(SAMPLES.glob("*.py")):
        for number, row in enumerate(path.read_text("utf-8").split("\n"), 1):
            if re.search(rf"[\"']{re.escape(op_name)}[\"']", row):
                yield f"{path.relative_to(ROOT)}:{number}: {row.strip()[:80]}"
                return


# Checks.


def _check(paths: Sequence[Path], *, every: bool, fill: bool) -> int:
    known = frozenset(load.op_name_of(path) for path in load.find(OPDEFS))
    found = 0
    done = 0
    for path in paths:
        content = path.read_bytes()
        op, problems = load.load_text(content, path, known)
        if op is None:
            print(*problems, sep="\n")
            found += len(problems)
            continue
        if not every and op.example is None:
            continue
        done += 1
        if fill:
            op = _filled(op, path)
        began = time.perf_counter()
        wrong = list(_said(op, known))
        if path.read_bytes() != _laid_out(op, path):
            wrong.insert(0, "is not laid out as all are: 'check --fill' does that")
        hints, state = _judged(op, wrong)
        seconds = time.perf_counter() - began
        print(f"{op.name}: {'wrong' if wrong else 'right'}, {state}, {seconds:.1f} s")
        where = path.relative_to(ROOT)
        for one in wrong:
            print(f"  {where}: {one}")
        for hint in hints:
            print(f"  hint: {hint}")
        found += len(wrong)
        sys.stdout.flush()
    print(f"{done} checked, {found} to mend")
    return 1 if found else 0


def _said(op: Op, known: frozenset[str]) -> list[str]:
    from reference.support import examples, prose

    return [
        *prose.incomplete(op),
        *prose.copied(op),
        *prose.unknown_names(op, known),
        *examples.in_form(op),
    ]


def _judged(op: Op, wrong: list[str]) -> tuple[Sequence[str], str]:
    from reference.support.judge import judge

    verdict = judge(op, thorough=True)
    wrong += verdict.wrong
    if verdict.counts:
        return verdict.hints, f"shapes checked by {verdict.by}"
    why = "see below" if wrong else op.unchecked or verdict.missing
    return verdict.hints, f"shapes not checked ({why})"


def _filled(op: Op, path: Path) -> Op:
    """The op with what its example prints, which is written down."""
    from reference.support import examples

    filled = op
    if op.example is not None and examples.runs(op):
        filled = dataclasses.replace(op, example=examples.output(op))
    if filled != op:
        print(f"{op.name}: wrote what its example prints")
    text = _laid_out(filled, path)
    if text != path.read_bytes():
        write.write(path, text)
    return filled


def _laid_out(op: Op, path: Path) -> bytes:
    """An opdef as importing writes it, with the comments at its top."""
    rows = itertools.takewhile(
        lambda row: row.startswith("#"), path.read_text("utf-8").split("\n")
    )
    return "\n".join([*rows, dump.dump(op)]).encode()


def _report() -> int:
    """How many ops that the installed TensorFlow has have what, by group."""
    from reference.support import prose
    from reference.support.judge import judge
    from support.versions import installed_ops

    total: Counter[str] = Counter()
    rows: dict[str, Counter[str]] = {}
    reasons: list[str] = []
    for op in installed_ops().values():
        row = rows.setdefault(op.group, Counter())
        row["ops"] += 1
        row["complete"] += not list(prose.incomplete(op))
        verdict = judge(op)
        row["shapes checked"] += verdict.counts
        row["wrong"] += bool(verdict.wrong)
        if not verdict.counts:
            reasons.append(f"{op.name}: {op.unchecked or verdict.missing}")
    columns = ("ops", "complete", "shapes checked", "wrong")
    print(f"{'group':18}", *(f"{column:>14}" for column in columns))
    for group, row in sorted(rows.items()):
        print(f"{group:18}", *(f"{row[column]:14}" for column in columns))
        total += row
    print(f"{'all':18}", *(f"{total[column]:14}" for column in columns))
    print("\nnot checked:", *reasons, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main())
