"""A kernel of another library, as a TPU build may have, runs instead of ours."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest
import tensorflow as tf

from opwright.tpu import compute_dedup_data_size
from support.processes import run_code

# Registered as TensorFlow registers its own: with the default priority.
OTHER = """
#include "tensorflow/core/framework/op_kernel.h"

class Other : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tensorflow::OpKernelContext* context) override {
    context->SetStatus(absl::UnavailableError("it is the other kernel that runs"));
  }
};
REGISTER_KERNEL_BUILDER(Name("ComputeDedupDataSize").Device("CPU"), Other);
REGISTER_KERNEL_BUILDER(Name("XlaSparseDenseMatmulWithCsrInput")
                            .Device("CPU")
                            .TypeConstraint<float>("T"),
                        Other);
"""

CALL = """
import tensorflow as tf
{load}

def message(op, *arguments, **attrs):
    try:
        op(*arguments, **attrs)
    except tf.errors.OpError as error:
        return error.message
    return "ran"

def lookup(dtype):
    return message(
        tf.raw_ops.XlaSparseDenseMatmulWithCsrInput,
        row_pointers=[0] * 8, sorted_sample_ids=tf.zeros([0], tf.int32),
        sorted_token_ids=tf.zeros([0], tf.int32), sorted_gains=tf.zeros([0]),
        embedding_table=tf.zeros([4, 2], dtype), input_size=4, table_name="",
        quantization_config_low=0.0, quantization_config_high=0.0,
        quantization_config_num_buckets=0,
        num_minibatches_per_physical_sparse_core=1, num_sparsecores_per_device=1)

print(message(opwright.tpu.compute_dedup_data_size, b""))
print(lookup(tf.float32))
print(lookup(tf.int32))
print(message(opwright.tpu.compute_dedup_data_tuple_mask, b""))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    source, built = folder / "other.cc", folder / "other.so"
    source.write_text(OTHER, "utf-8")
    compiler = sysconfig.get_config_var("CXX").split()[0]
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-O0",
            "-w",
            "-o",
            str(built),
            str(source),
            *tf.sysconfig.get_compile_flags(),
            *tf.sysconfig.get_link_flags(),
        ],
        check=True,
    )
    return built


@pytest.mark.rotating(together="library")
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_kernel_of_other_library_has_priority(library: Path, first: str) -> None:
    ours, theirs = "import opwright.tpu", f"tf.load_op_library({str(library)!r})"
    load = [ours, theirs] if first == "ours" else [theirs, ours]
    done = run_code(CALL.format(load="\n".join(load)))
    assert done.returncode == 0, done.stderr
    size, floats, integers, mask = done.stdout.splitlines()
    assert "it is the other kernel that runs" in size
    assert "it is the other kernel that runs" in floats
    # Our kernels run for the dtypes and ops that the other library lacks.
    assert integers == "ran"
    assert "config is empty" in mask


def test_kernel_without_other_library_runs() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="config is empty"):
        compute_dedup_data_size(b"")
