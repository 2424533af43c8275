"""Opdefs to a package of classes: only what changed, on all cores.

What was generated from what is kept in a manifest beside the package, by digest, so
that a fresh clone, whose file times say nothing, costs no more than an old checkout.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opwright_codegen import load, naming, write
from opwright_codegen.load import OpdefError, Problem

Progress = Callable[[int, int], None]

_CHUNK = 16


@dataclass(frozen=True)
class Target:
    """A package: its opdefs lie below `opdefs`, its modules in `output`/`package`."""

    opdefs: Path
    output: Path
    package: str

    @property
    def root(self) -> Path:
        return self.output / self.package

    @property
    def manifest(self) -> Path:
        return self.output / f"{self.package}.manifest.json"


@dataclass(frozen=True)
class Report:
    """What a run found or did; paths are relative to the package's folder."""

    ops: int
    written: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        return tuple(sorted({*self.written, *self.removed}))


@dataclass(frozen=True)
class _Entry:
    """What the manifest says of a file.

    `source`: digest of what it was generated from. `output`: its own digest.
    `refers`: ops that its opdef names, which must go on existing.
    """

    source: str
    output: str
    refers: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Made:
    """Generated files: their text, what they refer to, what was wrong."""

    files: dict[str, bytes]
    refers: dict[str, tuple[str, ...]]
    problems: list[Problem]


def generate(
    target: Target,
    *,
    check: bool = False,
    clean: bool = False,
    workers: int | None = None,
    progress: Progress = lambda done, total: None,
) -> Report:
    """Brings the package up to date, or with `check` says what it would change.

    Args:
      target: where from, where to, and the package's name.
      check: write nothing, and generate everything anew to compare.
      clean: generate everything anew, whatever the manifest says.
      workers: processes; all cores by default.
      progress: called with the number of ops done and to do.

    Raises:
      OpdefError: opdefs have mistakes. Nothing was written.
    """
    paths = load.find(target.opdefs)
    names = frozenset(map(load.op_name_of, paths))
    problems = [*load.misplaced(target.opdefs), *load.check_together(paths)]
    if not paths and not problems:
        problems.append(Problem(str(target.opdefs), 1, 1, "", "holds no opdefs"))

    generator = _generator_digest()
    known = {} if check or clean else _read_manifest(target, generator)
    present = dict(_present(target.root))
    opdefs = {_output_of(path): (path, path.read_bytes()) for path in paths}
    shared = _shared_sources(target.package, paths)
    sources = {output: _digest(content) for output, (_, content) in opdefs.items()}
    sources |= {output: _digest(facts) for output, (facts, _) in shared.items()}

    entries = {
        output: entry
        for output, entry in known.items()
        if sources.get(output) == entry.source
        and present.get(output) == entry.output
        and names.issuperset(entry.refers)
    }
    stale = [opdefs[output] for output in opdefs if output not in entries]
    made = _generate_ops(stale, names, workers or os.cpu_count() or 1, progress)
    problems += made.problems
    if problems:
        raise OpdefError(problems)

    files = made.files | {
        output: build().encode()
        for output, (_, build) in shared.items()
        if output not in entries
    }
    for output, content in files.items():
        refers = made.refers.get(output, ())
        entries[output] = _Entry(sources[output], _digest(content), refers)

    written = [
        output for output in files if present.get(output) != entries[output].output
    ]
    removed = set(present) - set(entries)
    report = Report(len(paths), tuple(sorted(written)), tuple(sorted(removed)))
    if check:
        return report
    # Files first, then the manifest: a run that is cut short leaves files that the
    # manifest does not vouch for, and the next one makes them again.
    write.remove_temporary(target.output)
    for output in report.written:
        write.write(target.root / output, files[output])
    write.remove(target.root, (target.root / output for output in report.removed))
    _write_manifest(target, generator, entries)
    return report


def _output_of(path: Path) -> str:
    group = path.parent.name.replace(".", "/")
    return f"{group}/{naming.module_name(load.op_name_of(path))}.py"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _generator_digest() -> str:
    """Changes with anything that decides what is generated from an opdef."""
    state = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("templates/*.jinja")]):
        state.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    for package in ("black", "jinja2", "pyyaml"):
        state.update(f"{package}=={version(package)}\0".encode())
    return state.hexdigest()[:32]


def _present(root: Path) -> Iterator[tuple[str, str]]:
    """Every file below `root` that a run could have written, with its digest."""
    for path in [*root.rglob("*.py"), *root.glob("py.typed")]:
        yield path.relative_to(root).as_posix(), _digest(path.read_bytes())


def _read_manifest(target: Target, generator: str) -> dict[str, _Entry]:
    """What the last run vouches for; nothing if it was another generator's."""
    try:
        manifest = json.loads(target.manifest.read_text("utf-8"))
        if manifest["generator"] != generator:
            return {}
        return {
            name: _Entry(source, output, tuple(refers))
            for name, (source, output, *refers) in manifest["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write_manifest(target: Target, generator: str, entries: dict[str, _Entry]) -> None:
    files = {
        name: [entry.source, entry.output, *entry.refers]
        for name, entry in sorted(entries.items())
    }
    rows = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in files.items()
    )
    text = f'{{"generator": "{generator}",\n"files": {{\n{rows}\n}}}}\n'
    content = text.encode()
    if not (target.manifest.is_file() and target.manifest.read_bytes() == content):
        write.write(target.manifest, content)


def _generate_ops(
    stale: Sequence[tuple[Path, bytes]],
    names: frozenset[str],
    workers: int,
    progress: Progress,
) -> _Made:
    made = _Made({}, {}, [])
    chunks = [stale[i : i + _CHUNK] for i in range(0, len(stale), _CHUNK)]
    done = 0
    for chunk, result in _map(chunks, names, workers):
        made.files.update(result.files)
        made.refers.update(result.refers)
        made.problems.extend(result.problems)
        done += len(chunk)
        progress(done, len(stale))
    return made


_Chunk = Sequence[tuple[Path, bytes]]


def _map(
    chunks: Sequence[_Chunk], names: frozenset[str], workers: int
) -> Iterator[tuple[_Chunk, _Made]]:
    if len(chunks) <= 1 or workers == 1:
        for chunk in chunks:
            yield chunk, _generate_chunk(chunk, names)
        return
    with ProcessPoolExecutor(min(workers, len(chunks))) as pool:
        futures = {
            pool.submit(_generate_chunk, chunk, names): chunk for chunk in chunks
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def _generate_chunk(chunk: _Chunk, names: frozenset[str]) -> _Made:
    # Imported where they are used: a run that finds nothing changed needs neither.
    from opwright_codegen import emit
    from opwright_codegen.format import format_source

    made = _Made({}, {}, [])
    for path, content in chunk:
        op, problems = load.load_text(content, path, names)
        made.problems.extend(problems)
        if op is not None:
            output = _output_of(path)
            made.files[output] = format_source(emit.op_source(op)).encode()
            made.refers[output] = op.refers
    return made


def _shared_sources(
    package: str, paths: Sequence[Path]
) -> dict[str, tuple[bytes, Callable[[], str]]]:
    """The files that list ops, each with the facts that it is made from."""
    groups: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        group = path.parent.name
        groups[group].append(load.op_name_of(path))
        while "." in group:
            group = group.rpartition(".")[0]
            groups[group].extend(())

    def shared(kind: str, *arguments: Any) -> tuple[bytes, Callable[[], str]]:
        def build() -> str:
            from opwright_codegen import emit
            from opwright_codegen.format import format_source

            return format_source(getattr(emit, kind)(*arguments))

        return repr((kind, arguments)).encode(), build

    table = sorted((name, group) for group, ops in groups.items() for name in ops)
    sources: dict[str, tuple[bytes, Callable[[], str]]] = {
        "py.typed": (b"", lambda: ""),
        "__init__.py": shared("root_source", package),
        "_table.py": shared("table_source", package, table),
    }
    for group, ops in groups.items():
        below = sorted(g[len(group) + 1 :] for g in groups if g.startswith(f"{group}."))
        output = f"{group.replace('.', '/')}/__init__.py"
        sources[output] = shared("group_source", package, group, sorted(ops), below)
    return sources
