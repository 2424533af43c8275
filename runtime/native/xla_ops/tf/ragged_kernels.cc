// Kernels for XLA of ops on ragged tensors.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/ragged.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::Tensor;

// The inputs `shape`, `values`, `default_value`, and from here on the partitions.
constexpr int kPartitions = 3;

class RaggedTensorToTensorOp : public XlaKernel {
 public:
  explicit RaggedTensorToTensorOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("row_partition_types", &types_));
    OP_REQUIRES_OK(context, context->GetAttr("num_row_partition_tensors", &count_));
    by_ids_ = !types_.empty() && types_[0] == "FIRST_DIM_SIZE";
    bool known = static_cast<size_t>(count_) == types_.size() && types_.size() > by_ids_;
    for (size_t i = by_ids_; i < types_.size(); ++i) {
      known &= types_[i] == (by_ids_ ? "VALUE_ROWIDS" : "ROW_SPLITS");
    }
    OP_REQUIRES(context, known,
                Invalid("row_partition_types",
                        "must be ROW_SPLITS for each partition, or FIRST_DIM_SIZE and then "
                        "VALUE_ROWIDS"));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    if (call->rank(1) < 1) return call->Refuse(1, "must have at least one dimension");
    Sizes given;
    TF_RETURN_IF_ERROR(ReadGiven(*call, &given));
    std::vector<RaggedLevel> levels;
    TF_RETURN_IF_ERROR(ReadLevels(*call, given[0], &levels));
    Sizes sizes;
    TF_RETURN_IF_ERROR(ReadShape(*call, levels, given, &sizes));
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(0), sizes));
    const Sizes& otherwise = call->shape(2);
    const Sizes& values = call->shape(1);
    bool fits = otherwise.size() < values.size();
    for (size_t i = 0; fits && i < otherwise.size(); ++i) {
      const int64_t size = values[values.size() - otherwise.size() + i];
      fits = otherwise[i] == size || otherwise[i] == 1;
    }
    if (!fits) {
      return call->Refuse(2, StrCat("must broadcast to the inner dimensions of values, ",
                                    Text(values), "; has the shape ", Text(otherwise)));
    }
    const Sizes inner(values.begin() + 1, values.end());
    xla::XlaOp filler = call->input(2);
    if (Product(otherwise) == 1) {
      filler = xla::Reshape(filler, {});
    } else {
      filler = Broadcast(filler, otherwise, inner);
    }
    call->Set(0, RaggedToDense(levels, call->input(1), filler, sizes));
    return absl::OkStatus();
  }

 private:
  static xla::XlaOp Broadcast(xla::XlaOp x, const Sizes& from, const Sizes& to) {
    Sizes kept, dims;
    for (size_t i = 0; i < from.size(); ++i) {
      const size_t at = to.size() - from.size() + i;
      if (from[i] == 1 && to[at] != 1) continue;
      kept.push_back(from[i]);
      dims.push_back(static_cast<int64_t>(at));
    }
    return Spread(xla::Reshape(x, kept), to, dims);
  }

  // Reads the sizes that `shape` has, of which -1 is not given.
  absl::Status ReadGiven(const XlaCall& call, Sizes* given) const {
    const size_t rank = types_.size() - by_ids_ + call.shape(1).size();
    TF_RETURN_IF_ERROR(call.Known(0, given));
    if (call.rank(0) == 0) given->assign(rank, -1);
    if (given->size() == rank) return absl::OkStatus();
    return call.Refuse(0, StrCat("must have ", rank, " elements, has ", given->size()));
  }

  absl::Status ReadLevels(const XlaCall& call, int64_t given,
                          std::vector<RaggedLevel>* levels) const {
    int64_t rows = given;
    if (by_ids_) {
      // Rows past those of the result are dropped, so that their number does not count.
      if (given < 0) TF_RETURN_IF_ERROR(call.KnownSize(kPartitions, 0, &rows));
      TF_RETURN_IF_ERROR(call.CheckSize(call.NameOf(kPartitions), {rows}));
    }
    for (int i = by_ids_; i < count_; ++i) {
      const int at = kPartitions + i;
      TF_RETURN_IF_ERROR(call.WantRank(at, 1));
      const int64_t size = call.count(at);
      if (by_ids_) {
        levels->push_back(LevelOfRowIds(call.input(at), rows));
        rows = size;
        continue;
      }
      if (size == 0) return call.Refuse(at, "must have at least one element");
      const int64_t values = i + 1 < count_ ? call.count(at + 1) - 1 : call.shape(1)[0];
      levels->push_back(LevelOfSplits(call.input(at), size - 1, values < 0 ? 0 : values));
      rows = values;
    }
    if (rows != call.shape(1)[0]) {
      return call.Refuse(1, StrCat("must have ", rows, " rows, has ", call.shape(1)[0]));
    }
    return absl::OkStatus();
  }

  // The shape of the result. The sizes of ragged dimensions must be given, because values would
  // decide them.
  static absl::Status ReadShape(const XlaCall& call, const std::vector<RaggedLevel>& levels,
                                const Sizes& given, Sizes* sizes) {
    const Sizes& values = call.shape(1);
    const size_t rank = given.size();
    for (size_t i = 0; i < rank; ++i) {
      const bool ragged = i > 0 && i <= levels.size();
      const int64_t own = i == 0 ? levels[0].count : ragged ? -1 : values[i - levels.size()];
      if (given[i] < 0 && ragged) {
        return call.NotKnown(0, "Give the size of each ragged dimension.");
      }
      if (!ragged && i > 0 && given[i] >= 0 && given[i] != own) {
        return call.Refuse(0, StrCat("dimension ", i, " must be ", own, ", is ", given[i]));
      }
      sizes->push_back(given[i] < 0 ? own : given[i]);
    }
    return absl::OkStatus();
  }

  std::vector<std::string> types_;
  int count_ = 0;
  bool by_ids_ = false;  // Partitions are row ids, after the number of rows.
};

class RaggedTensorToSparseOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    const int last = call->num_inputs() - 1;
    if (call->rank(last) < 1) return call->Refuse(last, "must have at least one dimension");
    std::vector<xla::XlaOp> splits;
    for (int i = 0; i < last; ++i) {
      TF_RETURN_IF_ERROR(call->WantRank(i, 1));
      if (call->count(i) == 0) return call->Refuse(i, "must have at least one element");
      splits.push_back(call->input(i));
    }
    const RaggedIndices made = RaggedToSparse(splits, call->shape(last));
    call->Set(0, made.indices);
    call->Set(1, xla::Reshape(call->input(last), {call->count(last)}));
    call->Set(2, made.shape);
    return absl::OkStatus();
  }
};

// The number of steps from `start` to `limit`, rounded in the type as TensorFlow rounds it. NaN
// if it is not a number. A double is exact for all numbers of steps that are accepted.
template <class T>
double StepsOfRange(T start, T limit, T delta) {
  if ((delta > T(0) && limit < start) || (delta < T(0) && limit > start)) return 0;
  if constexpr (std::is_integral_v<T>) {
    const auto span = static_cast<uint64_t>(limit) - static_cast<uint64_t>(start);
    const auto step = static_cast<uint64_t>(delta);
    const uint64_t far = delta > 0 ? span : uint64_t{0} - span;
    const uint64_t by = delta > 0 ? step : uint64_t{0} - step;
    return static_cast<double>(far / by) + (far % by != 0);
  } else {
    using Eigen::numext::abs;
    using Eigen::numext::ceil;
    return static_cast<double>(ceil(abs((limit - start) / delta)));
  }
}

// The inputs of RaggedRange are known, so its results are constants of the program.
template <class T>
class RaggedRangeOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    int64_t rows = 1;
    for (int i = 0; i < 3; ++i) {
      if (call->rank(i) > 1) return call->Refuse(i, "must have at most one dimension");
      if (call->rank(i) == 1) rows = call->count(i);
    }
    std::array<Tensor, 3> given;
    for (int i = 0; i < 3; ++i) {
      if (call->rank(i) == 1) TF_RETURN_IF_ERROR(call->WantShape(i, {rows}));
      TF_ASSIGN_OR_RETURN(given[static_cast<size_t>(i)],
                          call->context()->ConstantInputTensor(i));
    }
    Sizes splits = {0};
    std::vector<T> values;
    for (int64_t row = 0; row < rows; ++row) {
      const auto at = [&](int i) {
        return given[static_cast<size_t>(i)].template flat<T>()(call->rank(i) == 0 ? 0 : row);
      };
      if (at(2) == T(0)) return call->Refuse(2, "must not be 0");
      const double steps = StepsOfRange(at(0), at(1), at(2));
      if (!(steps <=
            static_cast<double>(kMostConstants) - static_cast<double>(values.size()))) {
        return call->Refuse(1, StrCat("more than ", kMostConstants,
                                      " numbers, which would be constants of the program"));
      }
      T value = at(0);
      for (auto left = static_cast<int64_t>(steps); left > 0; --left) {
        values.push_back(value);
        if (left > 1) value = static_cast<T>(value + at(2));
      }
      splits.push_back(static_cast<int64_t>(values.size()));
    }
    call->Set(0, xla::ConvertElementType(xla::ConstantR1<int64_t>(call->builder(), splits),
                                         call->context()->output_xla_type(0)));
    call->Set(1, xla::ConstantR1<T>(call->builder(), values));
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kMostConstants = int64_t{1} << 24;
};

OPWRIGHT_REGISTER_XLA("RaggedTensorToTensor",
                      .TypeConstraint("T", kAny)
                          .TypeConstraint("Tindex", kIndices)
                          .TypeConstraint("Tshape", kIndices),
                      RaggedTensorToTensorOp);
OPWRIGHT_REGISTER_XLA("RaggedTensorToSparse",
                      .TypeConstraint("T", kAny).TypeConstraint("Tsplits", kIndices),
                      RaggedTensorToSparseOp);

#define OPWRIGHT_RAGGED_RANGE(T)                                                     \
  OPWRIGHT_REGISTER_XLA("RaggedRange",                                               \
                        .TypeConstraint<T>("T").TypeConstraint("Tsplits", kIndices), \
                        RaggedRangeOp<T>)
OPWRIGHT_RAGGED_RANGE(Eigen::bfloat16);
OPWRIGHT_RAGGED_RANGE(float);
OPWRIGHT_RAGGED_RANGE(double);
OPWRIGHT_RAGGED_RANGE(int32_t);
OPWRIGHT_RAGGED_RANGE(int64_t);
#undef OPWRIGHT_RAGGED_RANGE

const bool kRaggedConstantsRegistered =
    RegisterXlaConstants({"RaggedTensorToTensor"}, {"shape"}) &&
    RegisterXlaConstants({"RaggedRange"}, {"starts", "limits", "deltas"});

}  // namespace
}  // namespace opwright::xla_ops
