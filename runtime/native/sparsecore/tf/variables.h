// Tables in resource variables, which kernels read and update in place.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/execution_context.h"
#include "base/text.h"
#include "base/tf/status.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"

namespace opwright::sparsecore {

// The variables of an input list, locked as long as the object exists.
class Variables {
 public:
  enum class Access { kRead, kWrite };

  Variables(const char* input, Access access) : input_(input), access_(access) {}
  Variables(const Variables&) = delete;
  ~Variables() {
    for (tensorflow::Var* const var : locked_) {
      access_ == Access::kWrite ? var->mu()->unlock() : var->mu()->unlock_shared();
    }
  }

  // Finds and locks the variables. They must be matrices of float32.
  absl::Status Lock(tensorflow::OpKernelContext* context) {
    tensorflow::OpInputList handles;
    TF_RETURN_IF_ERROR(context->input_list(input_, &handles));
    found_.resize(static_cast<size_t>(handles.size()));
    std::vector<tensorflow::Var*> vars;
    for (int i = 0; i < handles.size(); ++i) {
      if (handles[i].NumElements() != 1) {
        return Invalid(Name(i),
                       "must be one handle, has the shape " + handles[i].shape().DebugString());
      }
      TF_RETURN_IF_ERROR(tensorflow::LookupResource(
          context, handles[i].flat<tensorflow::ResourceHandle>()(0), &At(found_, i)));
      vars.push_back(At(found_, i).get());
    }
    // TensorFlow locks variables in this order too.
    std::sort(vars.begin(), vars.end(), [](tensorflow::Var* a, tensorflow::Var* b) {
      return std::less<const void*>()(a->mu(), b->mu());
    });
    const auto end = std::unique(vars.begin(), vars.end());
    if (access_ == Access::kWrite && end != vars.end()) {
      return Invalid(input_, "each variable must be there once, two are the same");
    }
    vars.erase(end, vars.end());
    locked_.reserve(vars.size());
    for (tensorflow::Var* const var : vars) {
      access_ == Access::kWrite ? var->mu()->lock() : var->mu()->lock_shared();
      locked_.push_back(var);
    }
    return Check();
  }

  // Copies the values of variables that share their memory with other tensors.
  absl::Status Own(tensorflow::OpKernelContext* context, ExecutionContext& exec) {
    for (tensorflow::Var* const var : locked_) {
      const tensorflow::Tensor& old = *var->tensor();
      if (old.RefCountIsOne()) continue;
      tensorflow::Tensor copy;
      TF_RETURN_IF_ERROR(context->allocate_temp(old.dtype(), old.shape(), &copy));
      Copy(Floats(old), old.NumElements(), Floats(&copy), exec);
      *var->tensor() = copy;
    }
    return absl::OkStatus();
  }

  tensorflow::Var* var(int64_t i) const { return At(found_, i).get(); }
  int64_t size() const { return static_cast<int64_t>(found_.size()); }
  std::string Name(int64_t i) const { return StrCat(input_, "[", i, "]"); }
  const tensorflow::TensorShape& shape(int64_t i) const {
    return At(found_, i)->tensor()->shape();
  }
  float* data(int64_t i) const { return Floats(At(found_, i)->tensor()); }

 private:
  absl::Status Check() const {
    for (int64_t i = 0; i < size(); ++i) {
      tensorflow::Var& var = *At(found_, i);
      if (!var.is_initialized || !var.tensor()->IsInitialized()) {
        return absl::FailedPreconditionError(Name(i) + ": the variable is not initialized");
      }
      if (var.tensor()->dtype() != tensorflow::DT_FLOAT || var.tensor()->dims() != 2) {
        return Invalid(Name(i), "must be a matrix of float32, is " + var.DebugString());
      }
    }
    return absl::OkStatus();
  }

  static void Copy(const float* from, int64_t count, float* to, ExecutionContext& exec) {
    constexpr int64_t kBlock = 1 << 18;
    exec.For((count + kBlock - 1) / kBlock, [&](int64_t i) {
      std::copy_n(from + i * kBlock, std::min(kBlock, count - i * kBlock), to + i * kBlock);
    });
  }

  const char* const input_;
  const Access access_;
  std::vector<tensorflow::core::RefCountPtr<tensorflow::Var>> found_;
  std::vector<tensorflow::Var*> locked_;
};

// Returns an error unless variables `first` to `first` + `count` - 1 have the same shape, are
// multiples of `cores` rows, and `devices` of them have fewer than 2^31 rows.
inline absl::Status CheckShards(const Variables& variables, int64_t first, int64_t count,
                                int64_t cores, int64_t devices) {
  const tensorflow::TensorShape& shape = variables.shape(first);
  if (shape.dim_size(0) % cores != 0 ||
      !(Checked(shape.dim_size(0)) * devices).AtMost(kMaxInt32)) {
    return Invalid(
        variables.Name(first),
        StrCat("the number of rows must be a multiple of the device's SparseCores, ", cores,
               ", and fewer than 2^31 on all devices, has the shape ", shape.DebugString()));
  }
  for (int64_t i = first + 1; i < first + count; ++i) {
    if (variables.shape(i) == shape) continue;
    return Invalid(variables.Name(i), "must have the shape " + shape.DebugString() + ", as " +
                                          variables.Name(first) + ", has " +
                                          variables.shape(i).DebugString());
  }
  return absl::OkStatus();
}

}  // namespace opwright::sparsecore
