"""C++ generated from opdefs: a library of odd ops, and the template project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from opwright_codegen import native, scaffold, write
from support import pages
from support.places import ROOT, environment
from support.processes import run_code
from support.workplace import command_on_registry, tree

Build = Callable[..., Path]
pytestmark = pytest.mark.slow  # Compiles.

HERE = Path(__file__).parent
EXAMPLE = ROOT / "examples" / "custom_op"
GUIDE = ROOT / "docs" / "tutorials" / "own_ops.md"
#: The page's check of a value, in C++.
(REFUSAL,) = re.findall(
    r"```cpp\n((?:(?!```).)*InvalidArgumentError.*?)```",
    GUIDE.read_text("utf-8"),
    re.DOTALL,
)

#: A kernel that leaves its results as they are allocated.
KERNEL = """\
{template}
class {cls} : public {cls}Kernel {{
 public:
  using {cls}Kernel::{cls}Kernel;

 protected:
  absl::Status Run(tensorflow::OpKernelContext*, const Arguments&,
                   const Results&) override {{
    return absl::OkStatus();
  }}
}};
REGISTER_{macro}_KERNELS(DEVICE_CPU, {cls});
"""
OPS = {
    "Blend": "template <typename T, typename Tidx>",
    "Frames": "",
    "Route": "",
    "Twice": "template <typename T>",
}
#: By file: the author's replacement for the last line of a generated kernel.
BODIES = {
    "twice_xla.cc": "c->SetOutput(0, xla::Add(x, x));\n    return absl::OkStatus();",
    "twice_gpu.cc": "return absl::OkStatus();",
}


def test_generated_cpp_compiles_and_matches_opdefs(
    build: Build, compiler: list[str], tmp_path: Path
) -> None:
    opdefs = shutil.copytree(HERE / "native", tmp_path / "opdefs")
    native.generate(opdefs, tmp_path)
    kernels = [
        KERNEL.format(template=template, cls=cls, macro=cls.upper())
        for cls, template in OPS.items()
    ]
    included = [f'#include "generated/{cls.lower()}_op.cc"\n' for cls in OPS]
    folder = tmp_path / "native"
    gpu = shutil.which("nvcc") is not None
    project = scaffold.Project(tmp_path, opdefs, "audio_ops")
    opdef = opdefs / "audio" / "Twice.yaml"
    begun = scaffold.missing(opdef, project, cuda=True, xla=True)
    for path, content in begun.items():
        write.write(path, content)
    for name in ["twice_xla.cc", *(["twice_gpu.cc"] if gpu else [])]:
        text, count = re.subn(
            r"return absl::UnimplementedError\(.*\);",
            BODIES[name],
            (folder / name).read_text(),
        )
        assert count == 1
        kernels.append(text)
    source = folder / "all.cc"
    # All of them at once: TensorFlow's headers take the time.
    source.write_text("".join([*included, *kernels]))
    # XLA's headers want two more folders, as generated/tensorflow.cmake has them.
    headers = [flag for flag in compiler if flag.startswith("-isystem")]
    more = ("highwayhash", "farmhash_archive/src")
    flags = [f"-I{folder}", *(f"{headers[0]}/external/{name}" for name in more)]
    if gpu:
        flags += on_gpu(folder)
    library = build(source, "generated_ops", *flags)

    # The registered ops match the opdefs, defaults included.
    said = command_on_registry("import", "--library", library, "--opdefs", opdefs)
    assert said.returncode == 0, said.stderr
    assert said.stderr.endswith(": 0 added, 0 updated, 4 unchanged\n"), said

    program = (HERE / "checks" / "use_generated_shapes.py").read_text("utf-8")
    used = run_code(program, library, *(["GPU"] if gpu else []))
    assert used.returncode == 0, used.stderr


def on_gpu(folder: Path) -> list[str]:
    """Compiles the CUDA of `folder`; the flags that link it into a library."""
    source = folder / "twice_gpu.cu"
    built = source.with_suffix(".o")
    flags = ("-std=c++17", "-arch=sm_80", "-O0", "-Xcompiler=-fPIC,-Wall,-Wextra")
    subprocess.run(["nvcc", *flags, "-c", source, "-o", built], check=True)
    dry = subprocess.run(
        ["nvcc", "--dryrun", "-x", "cu", os.devnull], capture_output=True, text=True
    )
    (toolkit,) = re.findall(r"TOP=(.*)", dry.stderr)
    return [
        f"-isystem{toolkit}/include",
        f"-L{toolkit}/lib64",
        f"-L{toolkit}/lib",
        str(built),
        "-Wl,--whole-archive,-l:libcudart_static.a,--no-whole-archive",
    ]


def configure(wheel: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs CMake with the wheel of a TensorFlow that nothing imports."""
    template = ROOT / "codegen/opwright_codegen/templates/native/tensorflow.cmake"
    (folder / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.22)\nproject(probe LANGUAGES CXX)\n"
        f"include({template})\n"
    )
    cmake = str(Path(sys.executable).with_name("cmake"))
    command = (cmake, "-S", folder, "-B", folder / "build", "-G", "Ninja")
    ninja = Path(sys.executable).with_name("ninja")
    return subprocess.run(
        [*command, f"-DCMAKE_MAKE_PROGRAM={ninja}", f"-DTENSORFLOW_WHEEL={wheel}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_template_wheel_of_another_processor_is_found(tmp_path: Path) -> None:
    wheel = tmp_path / "wheel"
    (wheel / "tensorflow-2.99.1.dist-info").mkdir(parents=True)
    found = configure(wheel, tmp_path)
    assert found.returncode == 0, found.stderr
    assert f"-- TensorFlow 2.99.1 in {wheel}/tensorflow\n" in found.stdout


def test_template_folder_without_a_wheel_is_refused(tmp_path: Path) -> None:
    refused = configure(tmp_path / "nothing", tmp_path)
    assert refused.returncode == 1
    words = f"no wheel of TensorFlow is unpacked: run pip install --target {tmp_path}"
    assert words in " ".join(refused.stderr.split())


def make(folder: Path, *targets: str) -> str:
    path = os.pathsep.join(str(ROOT / name) for name in ("runtime", "codegen"))
    bin_ = str(Path(sys.executable).parent)
    changes = {"PYTHONPATH": path, "PATH": bin_ + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(
        ["make", f"PYTHON={sys.executable}", *targets],
        cwd=folder,
        env=environment() | changes,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_custom_op_template_copy_builds_and_regenerates_equal(tmp_path: Path) -> None:
    """Two commands: `make`, which builds and tests, and `make types wheel`."""
    left_out = shutil.ignore_patterns("build", "dist", "*.so", "__pycache__", ".*")
    project = shutil.copytree(EXAMPLE, tmp_path / "project", ignore=left_out)
    shutil.copy(EXAMPLE / ".gitignore", project)
    kernel = project / "native/fade.cc"
    begin = "    auto faded = "
    assert begin in kernel.read_text()
    kernel.write_text(kernel.read_text().replace(begin, f"{REFUSAL}{begin}"))
    before = tree(project)
    assert "passed" in make(project)
    make(project, "types", "wheel")
    after = tree(project)
    # The generated files equal the committed ones.
    assert {name: after[name] for name in before} == before
    (wheel,) = (project / "dist").iterdir()
    assert wheel.name.startswith("my_audio-0.1.0-py3-none-linux_")
    packed = zipfile.ZipFile(wheel)
    names = set(packed.namelist())
    assert {
        "my_audio/gradients.py",
        "my_audio/ops/audio/fade.py",
        "my_audio/ops/libmy_audio_ops.so",
        "my_audio/ops/py.typed",
    } <= names
    minor = ".".join(version("tensorflow").split(".")[:2])
    metadata = packed.read("my_audio-0.1.0.dist-info/METADATA").decode()
    assert f"Requires-Dist: tensorflow=={minor}.*\n" in metadata
    refuses_wrong_wheels(project)
    runs_the_page(project)


def refuses_wrong_wheels(project: Path) -> None:
    """hatch_build.py builds no wheel that could not work with any TensorFlow."""

    def build() -> tuple[bool, str]:
        done = subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--outdir", "refused"],
            cwd=project,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode == 0, done.stdout + done.stderr

    settings = project / "pyproject.toml"
    text = settings.read_text()
    own = 'dependencies = ["opwright'
    assert own in text
    settings.write_text(
        text.replace(own, 'dependencies = ["tensorflow==1.9.*", "opwright')
    )
    built, said = build()
    assert not built
    assert (
        f"was built for TensorFlow {version('tensorflow')}, and pyproject.toml" in said
    )
    settings.write_text(text)
    library = project / "src/my_audio/ops/libmy_audio_ops.so"
    library.rename(project / "aside.so")
    built, said = build()
    assert not built
    assert "libmy_audio_ops.so; run make build first" in said
    (project / "aside.so").rename(library)


def runs_the_page(project: Path) -> None:
    """The programs of own_ops.md run with the built library."""
    calls, gradient = pages.programs(GUIDE)
    (project / "src/my_audio/gradients.py").write_text(gradient)
    path = os.pathsep.join([str(ROOT / "runtime"), "src"])
    program = (HERE / "checks" / "use_own_ops_page.py").read_text("utf-8")
    used = run_code(program, calls, cwd=project, PYTHONPATH=path)
    assert used.returncode == 0, used.stderr
