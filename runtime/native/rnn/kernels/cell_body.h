// One step of each cell, forward and backward.
// This file is a part of kernels_body.h, whose comment describes how it is compiled.

template <class T>
void ForwardLstm(const CellForwardArgs<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t at = p.state_row[r];
    const S* preactivations = p.preactivations + r * 4 * L;
    S* c = p.c + at * p.ldc;
    const V<S> i = Sigmoid<S>(Get<S, L>(preactivations));
    const V<S> f = Sigmoid<S>(Get<S, L>(preactivations + L));
    const V<S> g = Tanh<S>(Get<S, L>(preactivations + 2 * L));
    const V<S> o = Sigmoid<S>(Get<S, L>(preactivations + 3 * L));
    const V<S> cell = f * Get<S, L>(c) + i * g;
    const V<S> h = o * Tanh<S>(cell);
    Put<S, L>(c, cell);
    Put<S, L>(p.h + at * p.ldh, h);
    if (p.y) Put<T, L>(p.y + at * p.ldy, h, p.units);
    if (p.gates) {
      T* gates = p.gates + at * p.ld_gates;
      Put<T, L>(gates, i, p.units);
      Put<T, L>(gates + p.gate_stride, f, p.units);
      Put<T, L>(gates + 2 * p.gate_stride, g, p.units);
      Put<T, L>(gates + 3 * p.gate_stride, o, p.units);
      Put<T, L>(p.cells + at * p.ld_cells, cell, p.units);
    }
  }
}

template <class T>
void ForwardGru(const CellForwardArgs<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.state_row[i];
    const S* preactivations = p.preactivations + i * 4 * L;
    const V<S> r = Sigmoid<S>(Get<S, L>(preactivations + L));
    const V<S> z = Sigmoid<S>(Get<S, L>(preactivations + 2 * L));
    const V<S> recurrent = Get<S, L>(preactivations + 3 * L);
    const V<S> n = Tanh<S>(Get<S, L>(preactivations) + r * recurrent);
    const V<S> h = (S(1) - z) * n + z * Get<S, L>(p.h_before + at * p.ldh);
    Put<S, L>(p.h + at * p.ldh, h);
    if (p.y) Put<T, L>(p.y + at * p.ldy, h, p.units);
    if (p.gates) {
      T* gates = p.gates + at * p.ld_gates;
      Put<T, L>(gates, n, p.units);
      Put<T, L>(gates + p.gate_stride, r, p.units);
      Put<T, L>(gates + 2 * p.gate_stride, z, p.units);
      Put<T, L>(gates + 3 * p.gate_stride, recurrent, p.units);
    }
  }
}

template <class T, Cell kCell>
void ForwardPlain(const CellForwardArgs<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.state_row[i];
    for (int v = 0; v < 4; ++v) {
      const V<S> a = Get<S, L>(p.preactivations + (i * 4 + v) * L);
      const V<S> h = kCell == Cell::kRelu ? Relu<S>(a) : Tanh<S>(a);
      Put<S, L>(p.h + at * p.ldh + v * L, h);
      if (p.y && p.units > v * L) Put<T, L>(p.y + at * p.ldy + v * L, h, p.units - v * L);
    }
  }
}

template <class T>
void CellForward(const CellForwardArgs<T>& p) {
  switch (p.cell) {
    case Cell::kLstm: return ForwardLstm(p);
    case Cell::kGru: return ForwardGru(p);
    case Cell::kRelu: return ForwardPlain<T, Cell::kRelu>(p);
    case Cell::kTanh: return ForwardPlain<T, Cell::kTanh>(p);
  }
}

// The saved gates of padding units read as zero. Gradients of padding units are therefore zero,
// or a later product multiplies them by a weight of zero.
template <class T>
void BackwardLstm(const CellBackwardArgs<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t r = 0; r < p.rows; ++r) {
    const int64_t at = p.state_row[r];
    const T* gates = p.gates + at * p.ld_gates;
    const V<S> i = Get<T, L>(gates, p.units);
    const V<S> f = Get<T, L>(gates + p.gate_stride, p.units);
    const V<S> g = Get<T, L>(gates + 2 * p.gate_stride, p.units);
    const V<S> o = Get<T, L>(gates + 3 * p.gate_stride, p.units);
    const V<S> tanh_c = Tanh<S>(Get<T, L>(p.cells + at * p.ld_cells, p.units));
    const V<S> c_before = Get<T, L>(p.c_before[r] + p.unit, p.units);
    const V<S> dh = Get<S, L>(p.dh + at * p.ld_dh);
    S* const dc_at = p.dc + at * p.ld_dc;
    const V<S> dc = Get<S, L>(dc_at) + dh * o * (S(1) - tanh_c * tanh_c);
    S* const preactivation_grads = p.preactivation_grads + r * 4 * L;
    Put<S, L>(preactivation_grads, dc * g * i * (S(1) - i));
    Put<S, L>(preactivation_grads + L, dc * c_before * f * (S(1) - f));
    Put<S, L>(preactivation_grads + 2 * L, dc * i * (S(1) - g * g));
    Put<S, L>(preactivation_grads + 3 * L, dh * tanh_c * o * (S(1) - o));
    Put<S, L>(dc_at, dc * f);
    Put<S, L>(p.dh_before + at * p.ld_before, V<S>{});
  }
}

template <class T>
void BackwardGru(const CellBackwardArgs<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.state_row[i];
    const T* gates = p.gates + at * p.ld_gates;
    const V<S> n = Get<T, L>(gates, p.units);
    const V<S> r = Get<T, L>(gates + p.gate_stride, p.units);
    const V<S> z = Get<T, L>(gates + 2 * p.gate_stride, p.units);
    const V<S> recurrent = Get<T, L>(gates + 3 * p.gate_stride, p.units);
    const V<S> h_before = Get<T, L>(p.h_before[i] + p.unit, p.units);
    const V<S> dh = Get<S, L>(p.dh + at * p.ld_dh);
    const V<S> dn = dh * (S(1) - z) * (S(1) - n * n);
    S* const preactivation_grads = p.preactivation_grads + i * 4 * L;
    Put<S, L>(preactivation_grads, dn);
    Put<S, L>(preactivation_grads + L, dn * recurrent * r * (S(1) - r));
    Put<S, L>(preactivation_grads + 2 * L, dh * (h_before - n) * z * (S(1) - z));
    Put<S, L>(preactivation_grads + 3 * L, dn * r);
    Put<S, L>(p.dh_before + at * p.ld_before, dh * z);
  }
}

template <class T, Cell kCell>
void BackwardPlain(const CellBackwardArgs<T>& p) {
  using S = Compute<T>;
  constexpr int L = kLanes<S>;
  for (int64_t i = 0; i < p.rows; ++i) {
    const int64_t at = p.state_row[i];
    for (int v = 0; v < 4; ++v) {
      const int64_t units = p.units - v * L;
      const V<S> y = units > 0 ? Get<T, L>(p.y + at * p.ldy + v * L, units) : V<S>{};
      const V<S> dh = Get<S, L>(p.dh + at * p.ld_dh + v * L);
      const V<S> slope =
          kCell == Cell::kRelu ? (y > V<S>{} ? S(1) - V<S>{} : V<S>{}) : S(1) - y * y;
      Put<S, L>(p.preactivation_grads + (i * 4 + v) * L, dh * slope);
      Put<S, L>(p.dh_before + at * p.ld_before + v * L, V<S>{});
    }
  }
}

template <class T>
void CellBackward(const CellBackwardArgs<T>& p) {
  switch (p.cell) {
    case Cell::kLstm: return BackwardLstm(p);
    case Cell::kGru: return BackwardGru(p);
    case Cell::kRelu: return BackwardPlain<T, Cell::kRelu>(p);
    case Cell::kTanh: return BackwardPlain<T, Cell::kTanh>(p);
  }
}
