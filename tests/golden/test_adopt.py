"""The page on moving an op library into a project, with a small library of its form."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.places import ROOT, environment

PAGE = ROOT / "docs" / "how-to" / "adopt_library.md"
pytestmark = pytest.mark.slow  # Compiles.

OPS = """\
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

using namespace tensorflow;

{registration}
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {{
      c->set_output(0, c->input(0));
      return Status::OK();
    }});
"""
ZERO_OUT = 'REGISTER_OP("ZeroOut").Input("to_zero: int32").Output("zeroed: int32")'
TIME_TWO = (
    'REGISTER_OP("TimeTwo").Attr("T: {int32, float}").Input("in: T").Output("out: T")'
)
KERNEL = """\
#include "tensorflow/core/framework/op_kernel.h"
{include}
namespace tensorflow {{
template <typename T>
class {name}Op : public OpKernel {{
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {{
    const Tensor& given = context->input(0);
    Tensor* made = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, given.shape(), &made));
    const auto in = given.flat<T>();
    auto out = made->flat<T>();
    for (int64_t i = 0; i < in.size(); ++i) out(i) = {value};
  }}
}};
{registrations}
}}  // namespace tensorflow
"""
OWN_TEST = """\
from tensorflow_zero_out.python.ops.zero_out_ops import zero_out


def test_zero_out_of_a_matrix():
    assert zero_out([[1, 2], [3, 4]]).numpy().tolist() == [[1, 0], [0, 0]]
"""


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def custom_op(folder: Path) -> None:
    """A library in the form of tensorflow/custom-op, with its ops."""
    cpu = "REGISTER_KERNEL_BUILDER(Name({}).Device(DEVICE_CPU){}, {});"
    zero, two = folder / "tensorflow_zero_out", folder / "tensorflow_time_two"
    write(zero / "cc/ops/zero_out_ops.cc", OPS.format(registration=ZERO_OUT))
    write(two / "cc/ops/time_two_ops.cc", OPS.format(registration=TIME_TWO))
    kernel = KERNEL.format(
        include="",
        name="ZeroOut",
        value="i == 0 ? in(i) : 0",
        registrations=cpu.format('"ZeroOut"', "", "ZeroOutOp<int>"),
    )
    write(zero / "cc/kernels/zero_out_kernels.cc", kernel)
    constraint = '.TypeConstraint<{}>("T")'
    kernel = KERNEL.format(
        include='#include "time_two.h"\n',
        name="TimeTwo",
        value="Twice(in(i))",
        registrations="\n".join(
            cpu.format('"TimeTwo"', constraint.format(one), f"TimeTwoOp<{one}>")
            for one in ("int", "float")
        ),
    )
    write(two / "cc/kernels/time_two_kernels.cc", kernel)
    header = "template <typename T>\nT Twice(T x) {\n  return 2 * x;\n}\n"
    write(two / "cc/kernels/time_two.h", header)
    write(zero / "python/ops/zero_out_ops_test.py", OWN_TEST)


def test_page_moves_a_library_into_a_project_whose_tests_pass(tmp_path: Path) -> None:
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    shell = [text for kind, text in blocks if kind == "sh"]
    goldens = [text.strip() for kind, text in blocks if kind == "json"]
    (opdef,) = [text for kind, text in blocks if kind == "yaml"]
    project = tmp_path / "project"
    project.mkdir()
    custom_op(tmp_path / "custom-op")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**environment(), "PATH": path, "TF_CPP_MIN_LOG_LEVEL": "3"}

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    first, new, tests, build = shell
    clone, _, rest = first.partition("\n")
    assert clone.startswith("git clone https://github.com/tensorflow/custom-op ")
    run(rest)
    # What the page shows is what was imported, with texts.
    imported = (project / "opdefs/custom/ZeroOut.yaml").read_text()
    told = re.sub(r"summary: .*\n|, shape: '\*x', doc: ('.*'|[^}]*)(?=})", "", opdef)
    assert told == imported
    (project / "opdefs/custom/ZeroOut.yaml").write_text(opdef)
    run(new)
    run(tests)
    for name, text in zip(("ZeroOut", "TimeTwo"), goldens, strict=True):
        golden = project / f"tests/golden/{name}.json"
        empty = golden.read_text()
        assert '"results": null' in empty
        golden.write_text(empty.replace('  "results": null', f"  {text}"))
    assert build.splitlines()[0].split()[0] == "make"
    said = run("make PYTHON=python")
    assert " passed" in said and "zero_out_ops_test.py ." in said
