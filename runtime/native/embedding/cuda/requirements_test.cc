// Tests the messages for machines that cannot run the kernels, or that may have problems.
#include "embedding/cuda/requirements.h"

#include "base/testing/testing.h"

namespace opwright::embedding::cuda {
namespace {

TEST(Requirements, MachinesAreRefusedWithTheReason) {
  constexpr auto kRefused = StatusCode::kFailedPrecondition;
  Machine machine;
  machine.built_with = 13000;
  EXPECT_ERROR(CheckMachine(machine), kRefused, "no driver for GPUs");
  for (const int driver : {12090, 11080}) {
    machine.driver = driver;
    EXPECT_ERROR(CheckMachine(machine), kRefused, "built with CUDA 13.0");
  }
  machine.driver = 12090;
  EXPECT_ERROR(CheckMachine(machine), kRefused, "the driver is for CUDA 12.9");
  EXPECT_ERROR(CheckMachine(machine), kRefused, "nvcc 12");
  // An older driver of the same major version is accepted.
  machine.built_with = 12080;
  for (const int driver : {12000, 12080, 13000}) {
    machine.driver = driver;
    EXPECT_OK(CheckMachine(machine));
  }
  machine.gpu = "device 0";
  machine.capability = 75;
  machine.has_code = false;
  EXPECT_ERROR(CheckMachine(machine), kRefused, "device 0 has the compute capability 7.5");
  EXPECT_ERROR(CheckMachine(machine), kRefused, "CMAKE_CUDA_ARCHITECTURES=75");
}

TEST(Requirements, OtherCudaOfTensorFlowIsReported) {
  Machine machine;
  machine.built_with = 13000;
  EXPECT_EQ(OtherCuda(machine), "");
  machine.tensorflow = VersionOf("13.2.1");
  EXPECT_EQ(OtherCuda(machine), "");
  machine.tensorflow = VersionOf("12.5.1");
  EXPECT_EQ(machine.tensorflow, 12050);
  EXPECT(OtherCuda(machine).find("TensorFlow with CUDA 12.5") != std::string::npos);
  EXPECT_EQ(VersionOf(""), 0);
  EXPECT_EQ(VersionOf("none"), 0);
}

}  // namespace
}  // namespace opwright::embedding::cuda
