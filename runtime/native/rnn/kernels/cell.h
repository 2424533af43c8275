// The cells of recurrent layers.
#pragma once

namespace opwright::rnn {

enum class Cell { kRelu, kTanh, kLstm, kGru };

}  // namespace opwright::rnn
