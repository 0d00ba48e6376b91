// Vectors of L floats through the compilers' vector extensions: one source for AVX-512, AVX2, SSE2 and NEON.
// Everything here has internal linkage or lives in a per-path namespace (see kernel.cpp).
#pragma once

#define FEDTIDE_INLINE static inline __attribute__((always_inline))

template <int L>
struct Lanes;

#define FEDTIDE_LANES(L)                                                                       \
    template <>                                                                                \
    struct Lanes<L> {                                                                          \
        typedef float floats __attribute__((vector_size(L * 4)));                              \
        typedef std::int32_t ints __attribute__((vector_size(L * 4)));                         \
        typedef float loose_floats __attribute__((vector_size(L * 4), aligned(4), may_alias)); \
        typedef std::int32_t loose_ints __attribute__((vector_size(L * 4), aligned(4), may_alias)); \
    };
FEDTIDE_LANES(4)
FEDTIDE_LANES(8)
FEDTIDE_LANES(16)
#undef FEDTIDE_LANES

constexpr int W = FEDTIDE_LANE_COUNT;  // lanes of the widest vector of this path

template <int L>
using F = typename Lanes<L>::floats;
template <int L>
using I = typename Lanes<L>::ints;

template <int L>
FEDTIDE_INLINE F<L> load(const float* p) {
    return *reinterpret_cast<const typename Lanes<L>::loose_floats*>(p);
}
template <int L>
FEDTIDE_INLINE void store(float* p, F<L> v) {
    *reinterpret_cast<typename Lanes<L>::loose_floats*>(p) = v;
}
template <int L>
FEDTIDE_INLINE I<L> load_ints(const std::int32_t* p) {
    return *reinterpret_cast<const typename Lanes<L>::loose_ints*>(p);
}
template <int L>
FEDTIDE_INLINE void store_ints(std::int32_t* p, I<L> v) {
    *reinterpret_cast<typename Lanes<L>::loose_ints*>(p) = v;
}
template <int L>
FEDTIDE_INLINE F<L> splat(float x) {
    return x - F<L>{};  // not x + 0: that turns -0 into 0, so the compiler would have to add
}
template <int L>
FEDTIDE_INLINE I<L> splat_int(std::int32_t x) {
    return I<L>{} + x;
}

// Keeps a pointer in one register: otherwise the compiler spends a register or an addition on every address near it.
FEDTIDE_INLINE const float* pinned(const float* p) {
    __asm__("" : "+r"(p));
    return p;
}

FEDTIDE_INLINE int least(int a, int b) { return a < b ? a : b; }

// Elements of a and b, counted through, picked by number. GCC has the name that it shares with Clang since version 12.
#if defined(__clang__) || __GNUC__ >= 12
#define FEDTIDE_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define FEDTIDE_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, I<sizeof(a) / 4>{__VA_ARGS__})
#endif

// The two halves of a0 b0 a1 b1 ...
FEDTIDE_INLINE F<4> low(F<4> a, F<4> b) { return FEDTIDE_SHUFFLE(a, b, 0, 4, 1, 5); }
FEDTIDE_INLINE F<4> high(F<4> a, F<4> b) { return FEDTIDE_SHUFFLE(a, b, 2, 6, 3, 7); }
#if FEDTIDE_LANE_COUNT >= 8
FEDTIDE_INLINE F<8> low(F<8> a, F<8> b) { return FEDTIDE_SHUFFLE(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
FEDTIDE_INLINE F<8> high(F<8> a, F<8> b) { return FEDTIDE_SHUFFLE(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
#endif
#if FEDTIDE_LANE_COUNT >= 16
FEDTIDE_INLINE F<16> low(F<16> a, F<16> b) {
    return FEDTIDE_SHUFFLE(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
FEDTIDE_INLINE F<16> high(F<16> a, F<16> b) {
    return FEDTIDE_SHUFFLE(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
#endif

// Elements 0 2 4 ... and 1 3 5 ... of a followed by b.
FEDTIDE_INLINE F<4> evens(F<4> a, F<4> b) { return FEDTIDE_SHUFFLE(a, b, 0, 2, 4, 6); }
FEDTIDE_INLINE F<4> odds(F<4> a, F<4> b) { return FEDTIDE_SHUFFLE(a, b, 1, 3, 5, 7); }
#if FEDTIDE_LANE_COUNT >= 8
FEDTIDE_INLINE F<8> evens(F<8> a, F<8> b) { return FEDTIDE_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14); }
FEDTIDE_INLINE F<8> odds(F<8> a, F<8> b) { return FEDTIDE_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15); }
#endif
#if FEDTIDE_LANE_COUNT >= 16
FEDTIDE_INLINE F<16> evens(F<16> a, F<16> b) {
    return FEDTIDE_SHUFFLE(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
FEDTIDE_INLINE F<16> odds(F<16> a, F<16> b) {
    return FEDTIDE_SHUFFLE(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
}
#endif

// Rows become columns: log2(L) rounds of interleaving row i with row i + L/2.
template <int L>
FEDTIDE_INLINE void transpose(F<L> (&v)[L]) {
#pragma GCC unroll 4
    for (int round = 1; round < L; round *= 2) {
        F<L> next[L];
#pragma GCC unroll 8
        for (int i = 0; i < L / 2; ++i) {
            next[2 * i] = low(v[i], v[i + L / 2]);
            next[2 * i + 1] = high(v[i], v[i + L / 2]);
        }
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) v[i] = next[i];
    }
}

// Lane i of the result is the sum over the lanes of v[i].
template <int L>
FEDTIDE_INLINE F<L> sum_each(F<L> (&v)[L]) {
#pragma GCC unroll 4
    for (int half = L / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int i = 0; i < half; ++i) v[i] = low(v[i], v[i + half]) + high(v[i], v[i + half]);
    }
    return v[0];
}

// to[j][i] = row(i)[j] for numbers of four bytes, in whole vectors: `missing` stands for rows beyond the last.
template <class Row>
FEDTIDE_INLINE void turn(int rows, int columns, Row row, F<W> missing, float* to, std::int64_t stride) {
    for (int i = 0; i < rows; i += W) {
        for (int j = 0; j < columns; j += W) {
            F<W> v[W];
            for (int k = 0; k < W; ++k) v[k] = i + k < rows ? load<W>(row(i + k) + j) : missing;
            transpose<W>(v);
            for (int k = 0; k < least(W, columns - j); ++k) store<W>(to + (j + k) * stride + i, v[k]);
        }
    }
}

// No patch, where a choice of patches is turned.
FEDTIDE_INLINE F<W> no_choice() { return (F<W>)splat_int<W>(-1); }
