// Fully connected layers over a mini-batch. Weights stay in PyTorch's order [out in], rows padded to whole vectors with
// zeros: two of the three products then run with the lanes along `in`, the forward one ends in horizontal sums.
#pragma once

// out[m][n] (+)= sum over k of left[m * left_m + k * left_k] * right[k * right_k + n], for M rows and NV vectors.
template <int M, int NV>
static void product_tile(const float* left, std::int64_t left_m, std::int64_t left_k, const float* right,
                         std::int64_t right_k, int depth, float* out, std::int64_t out_m, bool add) {
    F<W> sum[M][NV];
    for (int m = 0; m < M; ++m)
        for (int v = 0; v < NV; ++v) sum[m][v] = add ? load<W>(out + m * out_m + v * W) : F<W>{};
    for (int k = 0; k < depth; ++k) {
        F<W> r[NV];
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) r[v] = load<W>(right + v * W);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
            const F<W> l = splat<W>(left[m * left_m]);
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) sum[m][v] += l * r[v];
        }
        left += left_k;
        right += right_k;
    }
    for (int m = 0; m < M; ++m)
        for (int v = 0; v < NV; ++v) store<W>(out + m * out_m + v * W, sum[m][v]);
}

using ProductTile = void (*)(const float*, std::int64_t, std::int64_t, const float*, std::int64_t, int, float*,
                             std::int64_t, bool);
constexpr int tile_rows = 4, tile_vectors = FEDTIDE_REGISTERS >= 32 ? 5 : 2;

template <int M = tile_rows, int NV = tile_vectors>
FEDTIDE_INLINE ProductTile find_product_tile(int rows, int vectors) {
    if (rows == M && vectors == NV) return product_tile<M, NV>;
    if constexpr (NV > 1) return find_product_tile<M, NV - 1>(rows, vectors);
    else if constexpr (M > 1) return find_product_tile<M - 1, tile_vectors>(rows, vectors);
    return product_tile<1, 1>;
}

static void product(const float* left, std::int64_t left_m, std::int64_t left_k, const float* right, std::int64_t right_k,
                    int rows, int columns, int depth, float* out, std::int64_t out_m, bool add) {
    const int vectors = columns / W, panels = (vectors + tile_vectors - 1) / tile_vectors;
    for (int panel = 0, first = 0; panel < panels; ++panel) {
        const int size = (vectors + panels - 1 - panel) / panels;
        for (int m = 0; m < rows; m += tile_rows) {
            const ProductTile tile = find_product_tile(least(tile_rows, rows - m), size);
            tile(left + m * left_m, left_m, left_k, right + first * W, right_k, depth, out + m * out_m + first * W, out_m,
                 add);
        }
        first += size;
    }
}

// out[b][o] = bias[o] + sum over i of input[b][i] * weight[o][i]
static void linear_forward(const Stage& s, const float* weight, const float* bias, const float* input, int batch,
                           float* out) {
    constexpr int B = 4, O = W >= 16 ? 4 : 2, groups = B * O / W;
    for (int o = 0; o < s.outputs; o += O) {
        const float* w[O];
        for (int i = 0; i < O; ++i) w[i] = weight + std::int64_t{least(o + i, s.outputs - 1)} * s.input_stride;
        for (int b = 0; b < batch; b += B) {
            const float* x[B];
            for (int i = 0; i < B; ++i) x[i] = input + std::int64_t{least(b + i, batch - 1)} * s.input_stride;
            F<W> sum[B * O] = {};
            for (std::int64_t k = 0; k < s.input_stride; k += W) {
                F<W> wk[O];
#pragma GCC unroll 8
                for (int j = 0; j < O; ++j) wk[j] = load<W>(w[j] + k);
#pragma GCC unroll 8
                for (int i = 0; i < B; ++i) {
                    const F<W> xk = load<W>(x[i] + k);
#pragma GCC unroll 8
                    for (int j = 0; j < O; ++j) sum[i * O + j] += xk * wk[j];
                }
            }
            float total[B * O];
#pragma GCC unroll 4
            for (int group = 0; group < groups; ++group) {
                F<W> part[W];
#pragma GCC unroll 16
                for (int i = 0; i < W; ++i) part[i] = sum[group * W + i];
                store<W>(total + group * W, sum_each<W>(part));
            }
            for (int i = 0; i < least(B, batch - b); ++i)
                for (int j = 0; j < least(O, s.outputs - o); ++j)
                    out[std::int64_t{b + i} * s.output_stride + o + j] = total[i * O + j] + bias[o + j];
        }
    }
}

static void linear_backward(const Stage& s, const float* weight, const float* input, const float* slope, int batch,
                            float* weight_gradient, float* bias_gradient, float* input_gradient, bool add) {
    product(slope, 1, s.output_stride, input, s.input_stride, s.outputs, s.input_stride, batch, weight_gradient,
            s.input_stride, add);
    for (int o = 0; o < s.output_stride; o += W) {
        F<W> sum = add ? load<W>(bias_gradient + o) : F<W>{};
        for (int b = 0; b < batch; ++b) sum += load<W>(slope + std::int64_t{b} * s.output_stride + o);
        store<W>(bias_gradient + o, sum);
    }
    if (input_gradient)
        product(slope, s.output_stride, 1, weight, s.input_stride, batch, s.input_stride, s.outputs, input_gradient,
                s.input_stride, false);
}
