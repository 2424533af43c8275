// Checks whether the kernels can run on a GPU and its driver, with an error text if not. This
// file does not need CUDA.
#pragma once

#include <string>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// CUDA versions are numbered as in CUDA's headers: 12040 is 12.4. 0 means unknown.
struct Machine {
  // The newest CUDA version that the driver supports. 0 means that there is no driver.
  int driver = 0;
  int built_with = 0;    // The version of the nvcc that compiled the kernels.
  int tensorflow = 0;    // The version with which TensorFlow was built.
  std::string gpu;       // The name of the GPU.
  int capability = 0;    // The compute capability of the GPU: 90 is 9.0.
  bool has_code = true;  // Whether the kernels were compiled for the GPU.
};

// Refuses a driver that is older than CUDA's runtime, and a GPU for which no kernels were
// compiled.
Status CheckMachine(const Machine& machine);

// Returns a warning if TensorFlow was built with another CUDA version. It is empty if that is
// harmless.
std::string OtherCuda(const Machine& machine);

// Parses a version: "12.5.1" gives 12050. Returns 0 if the text is not a version.
int VersionOf(const std::string& text);

}  // namespace opwright::embedding::cuda
