// Winograd's F(2 x 2, 3 x 3): a convolution of 3 x 3 with a pool of 2 x 2 behind it, for one sample, with 16 multiplications
// per pool block and pair of channels instead of 36 (Lavin and Gray, "Fast algorithms for convolutional neural networks",
// CVPR 2016). The four outputs of a tile are a pool block, so pool and ReLU stay in registers. They round otherwise than
// the sums of conv_forward.h: of two equal outputs either may come out as the larger one.
#pragma once

// (a0 - a2, a1 + a2, a2 - a1, a1 - a3) of four vectors.
template <int L>
FEDTIDE_INLINE void input_transform(F<L>& a0, F<L>& a1, F<L>& a2, F<L>& a3) {
    const F<L> b0 = a0 - a2, b1 = a1 + a2, b2 = a2 - a1, b3 = a1 - a3;
    a0 = b0;
    a1 = b1;
    a2 = b2;
    a3 = b3;
}

// tiles[tile][16][channel] from the channel-last input. The tiles overlap: each reads 4 x 4 pixels.
template <int L>
static void transform_input(const Stage& s, const float* pixels, float* tiles) {
    const std::int64_t next = s.channel_stride, pitch = s.padded_width * next;
    for (int y = 0; y < s.out_height; ++y) {
        for (int x = 0; x < s.out_width; ++x, tiles += 16 * next) {
            const float* corner = pixels + 2 * y * pitch + 2 * x * next;
            for (int c = 0; c < s.channel_stride; c += L) {
                F<L> d[4][4];
#pragma GCC unroll 4
                for (int j = 0; j < 4; ++j) {
#pragma GCC unroll 4
                    for (int i = 0; i < 4; ++i) d[i][j] = load<L>(corner + i * pitch + j * next + c);
                    input_transform<L>(d[0][j], d[1][j], d[2][j], d[3][j]);
                }
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    input_transform<L>(d[i][0], d[i][1], d[i][2], d[i][3]);
#pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) store<L>(tiles + (4 * i + j) * next + c, d[i][j]);
                }
            }
        }
    }
}

// (a0, (a0 + a1 + a2) / 2, (a0 - a1 + a2) / 2, a2) of three vectors.
template <int L>
FEDTIDE_INLINE void weight_transform(F<L> a0, F<L> a1, F<L> a2, F<L> (&to)[4]) {
    const F<L> outer = (a0 + a2) * 0.5f, middle = a1 * 0.5f;
    to[0] = a0;
    to[1] = outer + middle;
    to[2] = outer - middle;
    to[3] = a2;
}

// transformed[16][in channel][out channel] from the packed weights [out][3][3 in channels], L out channels at a time.
template <int L>
static void transform_weights(const Stage& s, const float* weight, float* transformed) {
    const std::int64_t next = s.channel_stride, size = next * s.out_stride;
    for (int o = 0; o < s.out_channels; o += L) {
        for (int c = 0; c < s.channel_stride; c += L) {
            F<L> all[16][L] = {};
            for (int k = 0; k < least(L, s.out_channels - o); ++k) {
                const float* from = weight + (std::int64_t{o} + k) * 3 * s.weight_row + c;
                F<L> half[3][4];
#pragma GCC unroll 3
                for (int j = 0; j < 3; ++j)
                    weight_transform<L>(load<L>(from + j * next), load<L>(from + s.weight_row + j * next),
                                        load<L>(from + 2 * std::int64_t{s.weight_row} + j * next), half[j]);
#pragma GCC unroll 4
                for (int i = 0; i < 4; ++i) {
                    F<L> whole[4];
                    weight_transform<L>(half[0][i], half[1][i], half[2][i], whole);
#pragma GCC unroll 4
                    for (int j = 0; j < 4; ++j) all[4 * i + j][k] = whole[j];
                }
            }
            for (int f = 0; f < 16; ++f) {
                transpose<L>(all[f]);
                for (int k = 0; k < L; ++k) store<L>(transformed + f * size + (c + k) * std::int64_t{s.out_stride} + o, all[f][k]);
            }
        }
    }
}

// products[16][T][NV] = sums over the input channels, of T tiles and NV vectors of output channels.
template <int T, int NV>
static void product_of_tiles(const Stage& s, const float* tiles, const float* transformed, float* products) {
    const std::int64_t next_tile = 16 * std::int64_t{s.channel_stride};
    for (int f = 0; f < 16; ++f) {
        F<W> sum[T][NV] = {};
        const float *x[(T + 2) / 3], *w = transformed + f * std::int64_t{s.channel_stride} * s.out_stride;
#pragma GCC unroll 4
        for (int t = 0; t < T; t += 3) x[t / 3] = pinned(tiles + f * std::int64_t{s.channel_stride} + t * next_tile);
        for (std::int64_t c = 0; c < s.in_channels; ++c, w += s.out_stride) {
            F<W> row[NV];
#pragma GCC unroll 4
            for (int v = 0; v < NV; ++v) row[v] = load<W>(w + v * W);
#pragma GCC unroll 12
            for (int t = 0; t < T; ++t) {
                const F<W> each = splat<W>(x[t / 3][c + t % 3 * next_tile]);
#pragma GCC unroll 4
                for (int v = 0; v < NV; ++v) sum[t][v] += each * row[v];
            }
        }
#pragma GCC unroll 12
        for (int t = 0; t < T; ++t) {
#pragma GCC unroll 4
            for (int v = 0; v < NV; ++v) store<W>(products + ((f * T + t) * NV + v) * W, sum[t][v]);
        }
    }
}

// (a0 + a1 + a2, a1 - a2 - a3) of four vectors.
FEDTIDE_INLINE void output_transform(F<W> a0, F<W> a1, F<W> a2, F<W> a3, F<W>& b0, F<W>& b1) {
    b0 = a0 + a1 + a2;
    b1 = a1 - a2 - a3;
}

// One pool block: its maximum, and which patch gave it, as conv_tile in conv_forward.h has it.
FEDTIDE_INLINE void pool_tile(const Stage& s, const float* products, std::int64_t next, F<W> bias, std::int32_t patch,
                              float* value, std::int32_t* choice) {
    F<W> half[2][4], y[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j)
        output_transform(load<W>(products + j * next), load<W>(products + (4 + j) * next), load<W>(products + (8 + j) * next),
                         load<W>(products + (12 + j) * next), half[0][j], half[1][j]);
    output_transform(half[0][0], half[0][1], half[0][2], half[0][3], y[0], y[1]);
    output_transform(half[1][0], half[1][1], half[1][2], half[1][3], y[2], y[3]);
    F<W> best = y[0];
    I<W> place = splat_int<W>(s.phase_offset[0]);
#pragma GCC unroll 3
    for (int phase = 1; phase < 4; ++phase) {
        const I<W> larger = y[phase] > best;
        best = larger ? y[phase] : best;
        place = larger ? splat_int<W>(s.phase_offset[phase]) : place;
    }
    best += bias;
    const F<W> zero = {};
    const I<W> off = s.relu ? best <= zero : I<W>{};
    store<W>(value, off ? zero : best);
    store_ints<W>(choice, off ? splat_int<W>(-1) : place + patch);
}

constexpr int most_tiles = FEDTIDE_REGISTERS >= 32 ? 12 : 6;
static_assert(16 * most_tiles * 2 <= max_products, "products are too large for their place");

template <int NV, int T = most_tiles>
FEDTIDE_INLINE void find_product_of_tiles(int count, const Stage& s, const float* tiles, const float* transformed,
                                          float* products) {
    if (count == T) return product_of_tiles<T, NV>(s, tiles, transformed, products);
    if constexpr (T > 1) find_product_of_tiles<NV, T - 1>(count, s, tiles, transformed, products);
}

// value and choice: [pool block][out channel].
static void multiply_tiles(const Stage& s, const float* tiles, const float* transformed, const float* bias, float* products,
                           float* value, std::int32_t* choice) {
    const int blocks = s.out_height * s.out_width, groups = (blocks + most_tiles - 1) / most_tiles;
    for (int o = 0; o < s.out_stride; o += 2 * W) {
        const int vectors = least(2, (s.out_stride - o) / W);
        for (int group = 0, first = 0; group < groups; ++group) {
            const int count = (blocks + groups - 1 - group) / groups;
            const float* from = tiles + first * std::int64_t{16} * s.channel_stride;
            if (vectors == 2)
                find_product_of_tiles<2>(count, s, from, transformed + o, products);
            else
                find_product_of_tiles<1>(count, s, from, transformed + o, products);
            for (int t = 0; t < count; ++t) {
                for (int v = 0; v < vectors; ++v) {
                    const std::int64_t place = std::int64_t{first + t} * s.out_stride + o + v * W;
                    pool_tile(s, products + (t * vectors + v) * W, std::int64_t{count} * vectors * W,
                              load<W>(bias + o + v * W), s.patch_base[first + t], value + place, choice + place);
                }
            }
            first += count;
        }
    }
}
