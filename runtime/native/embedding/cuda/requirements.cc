#include "embedding/cuda/requirements.h"

#include <cstdio>

namespace opwright::embedding::cuda {
namespace {

int Major(int version) { return version / 1000; }
std::string VersionText(int version) {
  return std::to_string(Major(version)) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

Status CheckMachine(const Machine& machine) {
  const std::string built =
      "the kernels were built with CUDA " + VersionText(machine.built_with);
  if (machine.driver == 0) {
    return FailedPreconditionError("there is no driver for GPUs, and " + built +
                                   ": install one, or run on the CPU");
  }
  // Within a major version, older drivers run programs of newer CUDA versions.
  if (Major(machine.driver) < Major(machine.built_with)) {
    return FailedPreconditionError("the driver is for CUDA " + VersionText(machine.driver) +
                                   " and " + built +
                                   ": install a newer driver, or build the kernels with nvcc " +
                                   std::to_string(Major(machine.driver)));
  }
  if (!machine.has_code) {
    return FailedPreconditionError(
        machine.gpu + " has the compute capability " + std::to_string(machine.capability / 10) +
        "." + std::to_string(machine.capability % 10) + ", and " + built +
        " without code for it: build them with -DCMAKE_CUDA_ARCHITECTURES=" +
        std::to_string(machine.capability) + ", for which 80 is the least");
  }
  return {};
}

std::string OtherCuda(const Machine& machine) {
  if (machine.tensorflow == 0 || Major(machine.tensorflow) == Major(machine.built_with)) {
    return "";
  }
  return "opwright's kernels were built with CUDA " + VersionText(machine.built_with) +
         " and TensorFlow with CUDA " + VersionText(machine.tensorflow) +
         ": both run in this process, on a driver for the newer one; build the kernels with "
         "nvcc " +
         std::to_string(Major(machine.tensorflow)) + " if anything is odd";
}

int VersionOf(const std::string& text) {
  int major = 0, minor = 0;
  if (std::sscanf(text.c_str(), "%d.%d", &major, &minor) < 1) return 0;
  return 1000 * major + 10 * minor;
}

}  // namespace opwright::embedding::cuda
