#include "sparsecore/tf/known_values.h"

#include <map>
#include <mutex>

#include "tensorflow/core/framework/tensor.h"

namespace opwright::sparsecore {
namespace {

struct Record {
  tensorflow::Tensor tensor;
  embedding::Range range;
  bool within;
};
struct Records {
  std::mutex mutex;
  std::map<const tensorflow::Var*, Record> of_variables;
};
Records& AllRecords() {
  // It is never destroyed, because ops may run until the process ends.
  static auto* const records = new Records;
  return *records;
}

}  // namespace

void KeepKnown(tensorflow::Var* var, embedding::Range range, bool within) {
  // In this mode, ops write to the variable in spite of the reference. TensorFlow sets it when
  // the tensor has one reference, which is the case now.
  var->copy_on_read_mode.store(false);
  Records& records = AllRecords();
  const std::lock_guard<std::mutex> lock(records.mutex);
  records.of_variables[var] = {*var->tensor(), range, within};
}

std::optional<bool> TakeKnown(tensorflow::Var* var, embedding::Range range) {
  Records& records = AllRecords();
  const std::lock_guard<std::mutex> lock(records.mutex);
  std::optional<bool> known;
  for (auto at = records.of_variables.begin(); at != records.of_variables.end();) {
    const Record& record = at->second;
    const bool is_its = at->first == var;
    if (is_its && record.range == range && !var->copy_on_read_mode.load() &&
        record.tensor.SharesBufferWith(*var->tensor())) {
      known = record.within;
    }
    // Tensors with no other reference belong to variables that have another one, or are gone.
    at = is_its || record.tensor.RefCountIsOne() ? records.of_variables.erase(at) : ++at;
  }
  return known;
}

void ForgetKnown() {
  Records& records = AllRecords();
  const std::lock_guard<std::mutex> lock(records.mutex);
  records.of_variables.clear();
}

}  // namespace opwright::sparsecore
