// Activation functions with an error of a few units in the last place. NaN gives NaN.
// This file is a part of kernels_body.h, whose comment describes how it is compiled.

template <class S>
struct Reduced {
  V<S> expm1;  // e^r - 1, where r = x - n ln 2 and n is an integer.
  V<S> scale;  // 2^n.
};

inline Reduced<float> Reduce(V<float> x) {
  // 1.5 * 2^23. Adding it to a value rounds the value to an integer.
  const float magic = 12582912.0f;
  const V<float> shifted = x * 1.44269504088896341f + magic;
  const V<float> n = shifted - magic;
  const V<float> r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  V<float> p = r * 1.98412698e-4f + 1.38888889e-3f;
  p = p * r + 8.33333333e-3f;
  p = p * r + 4.16666667e-2f;
  p = p * r + 1.66666667e-1f;
  p = p * r + 0.5f;
  p = p * (r * r) + r;
  const Simd<float, kLanes<float>>::I bits =
      (Simd<float, kLanes<float>>::I)shifted - 0x4b400000 + 127;
  return {p, (V<float>)(bits << 23)};
}

inline Reduced<double> Reduce(V<double> x) {
  // 1.5 * 2^52. Adding it to a value rounds the value to an integer.
  const double magic = 6755399441055744.0;
  const V<double> shifted = x * 1.4426950408889634074 + magic;
  const V<double> n = shifted - magic;
  const V<double> r = (x - n * 0.693145751953125) - n * 1.42860682030941723212e-6;
  V<double> p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r;
  const Simd<double, kLanes<double>>::I bits =
      (Simd<double, kLanes<double>>::I)shifted - 0x4338000000000000 + 1023;
  return {p, (V<double>)(bits << 52)};
}

template <class S>
inline V<S> Clamp(V<S> x, S low, S high) {
  const V<S> lows = low - V<S>{}, highs = high - V<S>{};
  x = x < lows ? lows : x;
  return x > highs ? highs : x;
}

template <class S>
inline V<S> Sigmoid(V<S> x) {
  const S limit = sizeof(S) == 4 ? S(87) : S(708);
  const Reduced<S> e = Reduce(Clamp<S>(-x, -limit, limit));
  return S(1) / (S(1) + (e.scale + e.scale * e.expm1));
}

// Tanh is computed from e^2x - 1, so that small values keep their relative precision.
template <class S>
inline V<S> Tanh(V<S> x) {
  const S limit = sizeof(S) == 4 ? S(20) : S(40);
  const Reduced<S> e = Reduce(Clamp<S>(x + x, -limit, limit));
  const V<S> expm1 = e.scale * e.expm1 + (e.scale - S(1));
  return expm1 / (expm1 + S(2));
}

template <class S>
inline V<S> Relu(V<S> x) {
  return x < V<S>{} ? V<S>{} : x;
}
