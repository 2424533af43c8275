// What every processor has.
#define OPWRIGHT_VECTOR_BYTES 16
#define OPWRIGHT_ACCUMULATORS 8
#include "core/embedding/rows_body.h"

namespace opwright {
namespace embedding {
extern const RowKernels rows_portable;
// Known when compiled: nothing here may run where the processor lacks the instructions.
constexpr RowKernels rows_portable = MakeRowKernels();
}  // namespace embedding
}  // namespace opwright
