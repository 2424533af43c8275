// What the kernels require of a GPU and its driver, as text. Nothing here needs CUDA.
#pragma once

#include <string>

#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Versions of CUDA as its headers have them: 12040 is 12.4; 0: not known.
struct Machine {
  int driver = 0;        // That the driver is for; 0: there is none.
  int built_with = 0;    // Of the nvcc that compiled the kernels.
  int tensorflow = 0;    // That TensorFlow was built with.
  std::string gpu;       // Its name,
  int capability = 0;    // its compute capability, 90 for 9.0,
  bool has_code = true;  // and whether the kernels were compiled for it.
};

// Refuses a driver that is older than CUDA's runtime, and a GPU without code.
Status CheckMachine(const Machine& machine);

// What may go wrong because TensorFlow has another CUDA; empty: nothing.
std::string OtherCuda(const Machine& machine);

// "12.5.1" as 12050; 0: it is no version.
int VersionOf(const std::string& text);

}  // namespace opwright::embedding::cuda
