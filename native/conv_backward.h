// The gradient of a convolution, for one sample, as a sparse list.
//
// Behind a pool at most one position per block has a gradient, behind a ReLU only positive ones, in a dropped channel none.
// So each output channel has a list of (patch, g): its weight gradient is the sum of g * input patch, the input gradient
// gathers g * weight patch. With the input channel-last, a row of a patch is contiguous, for every layer shape alike.
#pragma once

#if defined(__AVX2__) && !defined(__AVX512F__)
// For every set of lanes, the numbers of those in it, ascending: what compresses a vector.
struct Compressing {
    alignas(32) std::int32_t lane[256][8];
    constexpr Compressing() : lane{} {
        for (int set = 0; set < 256; ++set)
            for (int i = 0, found = 0; i < 8; ++i)
                if (set >> i & 1) lane[set][found++] = i;
    }
};
static constexpr Compressing compressing;
#endif

// Appends (choice[i], slope[i] * scale) where both say that there is a gradient; returns the new length.
static int append_nonzeros(const float* slope, const std::int32_t* choice, int count, float scale, std::int32_t* offset,
                           float* value, int length) {
#if defined(__AVX512F__)
    for (int i = 0; i < count; i += 16) {
        const __m512 g = _mm512_mul_ps(_mm512_loadu_ps(slope + i), _mm512_set1_ps(scale));
        const __m512i place = _mm512_loadu_si512(choice + i);
        const __mmask16 some = _mm512_cmp_ps_mask(g, _mm512_setzero_ps(), _CMP_NEQ_UQ) &
                               _mm512_cmpge_epi32_mask(place, _mm512_setzero_si512());
        _mm512_storeu_ps(value + length, _mm512_maskz_compress_ps(some, g));
        _mm512_storeu_si512(offset + length, _mm512_maskz_compress_epi32(some, place));
        length += __builtin_popcount(some);
    }
#elif defined(__AVX2__)
    const __m256 factor = _mm256_set1_ps(scale);
    for (int i = 0; i < count; i += 8) {
        const __m256 g = _mm256_mul_ps(_mm256_loadu_ps(slope + i), factor);
        const __m256i place = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(choice + i));
        const __m256 without = _mm256_castsi256_ps(place);  // the sign says that there is no gradient
        const __m256 some = _mm256_andnot_ps(without, _mm256_cmp_ps(g, _mm256_setzero_ps(), _CMP_NEQ_UQ));
        const int set = _mm256_movemask_ps(some);
        const __m256i lanes = _mm256_load_si256(reinterpret_cast<const __m256i*>(compressing.lane[set]));
        _mm256_storeu_ps(value + length, _mm256_permutevar8x32_ps(g, lanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(offset + length), _mm256_permutevar8x32_epi32(place, lanes));
        length += __builtin_popcount(static_cast<unsigned>(set));
    }
#else
    for (int i = 0; i < count; ++i) {  // without branches: the outcome is as good as random
        const float g = slope[i] * scale;
        value[length] = g;
        offset[length] = choice[i];
        length += (choice[i] >= 0) & (g != 0);
    }
#endif
    return length;
}

// sum[ROWS][NV] += g * patch.
template <int L, int ROWS, int NV>
FEDTIDE_INLINE void add_patch(F<L> (&sum)[ROWS][NV], const float* patch, std::int64_t pitch, float value) {
    const F<L> g = splat<L>(value);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r, patch = pinned(patch + pitch)) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) sum[r][v] += load<L>(patch + v * L) * g;
    }
}

// gradient[ROWS][NV L] += sum over the list of value * input patch rows.
template <int L, int ROWS, int NV>
static void weight_tile(const float* input, std::int64_t pitch, const std::int32_t* offset, const float* value, int count,
                        float* gradient, std::int64_t weight_row) {
    constexpr int chains = ROWS * NV < 8 ? 2 : 1;  // enough independent sums to hide the latency
    F<L> sum[chains][ROWS][NV] = {};
    int i = 0;
    for (; i + chains <= count; i += chains) {
#pragma GCC unroll 2
        for (int chain = 0; chain < chains; ++chain) add_patch<L>(sum[chain], input + offset[i + chain], pitch, value[i + chain]);
    }
    if (i < count) add_patch<L>(sum[0], input + offset[i], pitch, value[i]);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < NV; ++v) {
            F<L> total = sum[0][r][v];
            if constexpr (chains == 2) total += sum[1][r][v];
            float* to = gradient + r * weight_row + v * L;
            store<L>(to, load<L>(to) + total);
        }
    }
}

using WeightTile = void (*)(const float*, std::int64_t, const std::int32_t*, const float*, int, float*, std::int64_t);

constexpr int max_rows = 7, max_vectors = 8;
constexpr int max_sums = FEDTIDE_REGISTERS >= 32 ? 26 : 12;

template <int L, int ROWS = max_rows, int NV = max_vectors>
FEDTIDE_INLINE WeightTile find_weight_tile(int rows, int vectors) {
    if constexpr (ROWS * NV <= max_sums) {
        if (rows == ROWS && vectors == NV) return weight_tile<L, ROWS, NV>;
    }
    if constexpr (NV > 1) return find_weight_tile<L, ROWS, NV - 1>(rows, vectors);
    else if constexpr (ROWS > 1) return find_weight_tile<L, ROWS - 1, max_vectors>(rows, vectors);
    return weight_tile<L, 1, 1>;
}

// target += value * weights, patch after patch.
template <int L, int NV>
static void input_tile(const float* weight, int weight_row, int rows, const std::int32_t* offset, const float* value,
                       int count, float* target, std::int64_t pitch) {
    for (int i = 0; i < count; ++i) {
        float* patch = target + offset[i];
        const float* w = weight;
        const F<L> g = splat<L>(value[i]);
        for (int r = 0; r < rows; ++r, patch += pitch, w += weight_row) {
#pragma GCC unroll 8
            for (int v = 0; v < NV; ++v) store<L>(patch + v * L, load<L>(patch + v * L) + load<L>(w + v * L) * g);
        }
    }
}

using InputTile = void (*)(const float*, int, int, const std::int32_t*, const float*, int, float*, std::int64_t);

template <int L, int NV = max_vectors>
FEDTIDE_INLINE InputTile find_input_tile(int vectors) {
    if (vectors == NV) return input_tile<L, NV>;
    if constexpr (NV > 1) return find_input_tile<L, NV - 1>(vectors);
    return input_tile<L, 1>;
}

// Calls visit(first vector, vectors) for even parts of at most max_vectors.
template <class Visit>
FEDTIDE_INLINE void split_vectors(int vectors, Visit visit) {
    const int parts = (vectors + max_vectors - 1) / max_vectors;
    for (int part = 0, first = 0; part < parts; ++part) {
        const int size = (vectors + parts - 1 - part) / parts;
        visit(first, size);
        first += size;
    }
}

struct Lists {
    const std::int32_t *channel, *begin, *end, *offset;  // list of channel[i]: begin[i] .. end[i], begin[i] at a whole vector
    const float* value;
    int count;
};

// bias[channel] += sum of its list. The lists end in zeros that make whole vectors of them. Vectors are added up first, then
// lane after lane, for as many channels at once as there are lanes.
static void bias_gradient(const Lists& lists, float* bias) {
    for (int first = 0; first < lists.count; first += W) {
        const int count = least(W, lists.count - first);
        F<W> sum[W] = {};
        for (int i = 0; i < count; ++i)
            for (int place = lists.begin[first + i]; place < lists.end[first + i]; place += W)
                sum[i] += load<W>(lists.value + place);
        transpose<W>(sum);
        F<W> totals = {};
#pragma GCC unroll 16
        for (int lane = 0; lane < W; ++lane) totals += sum[lane];
        float total[W];
        store<W>(total, totals);
        for (int i = 0; i < count; ++i) bias[lists.channel[first + i]] += total[i];
    }
}

// The patch at to + place(i) += sum over list i of value * patch at from + offset.
template <int L, class Place>
FEDTIDE_INLINE void add_patches(const Stage& s, const Lists& lists, const float* from, std::int64_t from_pitch, float* to,
                                std::int64_t to_pitch, Place place) {
    split_vectors(s.patch_vectors, [&](int first, int vectors) {
        const int most = least(least(max_rows, max_sums / vectors), s.kernel);
        for (int row = 0; row < s.kernel;) {
            const int rows = least(most, s.kernel - row);
            const WeightTile tile = find_weight_tile<L>(rows, vectors);
            for (int i = 0; i < lists.count; ++i) {
                const int begin = lists.begin[i];
                tile(from + row * from_pitch + first * L, from_pitch, lists.offset + begin, lists.value + begin,
                     lists.end[i] - begin, to + place(i) + row * to_pitch + first * L, to_pitch);
            }
            row += rows;
        }
    });
}

template <int L>
static void weight_gradient(const Stage& s, const Lists& lists, const float* input, float* gradient) {
    add_patches<L>(s, lists, input, std::int64_t{s.padded_width} * s.channel_stride, gradient, s.weight_row,
                   [&](int i) { return std::int64_t{lists.channel[i]} * s.kernel * s.weight_row; });
}

template <int L>
static void input_gradient(const Stage& s, const Lists& lists, const float* weight, float* target) {
    const std::int64_t pitch = std::int64_t{s.padded_width} * s.channel_stride;
    split_vectors(s.patch_vectors, [&](int first, int vectors) {
        const InputTile tile = find_input_tile<L>(vectors);
        for (int i = 0; i < lists.count; ++i) {
            const int begin = lists.begin[i];
            tile(weight + std::int64_t{lists.channel[i]} * s.kernel * s.weight_row + first * L, s.weight_row, s.kernel,
                 lists.offset + begin, lists.value + begin, lists.end[i] - begin, target + first * L, pitch);
        }
    });
}

// Planes to channel-last and back. Without padding an image is one long row.
template <class Visit>
FEDTIDE_INLINE void each_row(const Stage& s, Visit visit) {
    if (s.padding == 0) return visit(std::int64_t{0}, std::int64_t{0}, s.in_height * s.in_width);
    for (int y = 0; y < s.in_height; ++y)
        visit(std::int64_t{y} * s.in_width,
              (std::int64_t{y + s.padding} * s.padded_width + s.padding) * s.channel_stride, s.in_width);
}

// Four pixels of three planes: r0 g0 b0 r1 g1 b1 ...
FEDTIDE_INLINE void weave_colours(const float* planes, std::int64_t plane, float* pixels) {
    const F<4> r = load<4>(planes), g = load<4>(planes + plane), b = load<4>(planes + 2 * plane);
    const F<4> first = low(r, g), second = high(r, g), middle = FEDTIDE_SHUFFLE(first, b, 3, 5, 3, 5);
    store<4>(pixels, FEDTIDE_SHUFFLE(first, b, 0, 1, 4, 2));
    store<4>(pixels + 4, FEDTIDE_SHUFFLE(middle, second, 0, 1, 4, 5));
    store<4>(pixels + 8, FEDTIDE_SHUFFLE(b, second, 2, 6, 7, 3));
}

template <int L>
static void to_channel_last(const Stage& s, const float* planes, float* pixels) {
    each_row(s, [&](std::int64_t from, std::int64_t to, int count) {
        if (s.in_channels == 1) {
            std::memcpy(pixels + to, planes + from, sizeof(float) * static_cast<std::size_t>(count));
            return;
        }
        if (s.in_channels <= 4) {
            int done = 0;
            if (s.in_channels == 3)
                for (; done + 4 <= count; done += 4) weave_colours(planes + from + done, s.in_plane, pixels + to + 3 * done);
            for (int c = 0; c < s.in_channels; ++c) {
                const float* plane = planes + std::int64_t{c} * s.in_plane + from;
                for (int x = done; x < count; ++x) pixels[to + std::int64_t{x} * s.channel_stride + c] = plane[x];
            }
            return;
        }
        for (int c = 0; c < s.in_channels; c += L) {
            for (int x = 0; x < count; x += L) {
                F<L> v[L];
                for (int i = 0; i < L; ++i)
                    v[i] = c + i < s.in_channels ? load<L>(planes + std::int64_t{c + i} * s.in_plane + from + x) : F<L>{};
                transpose<L>(v);
                float* pixel = pixels + to + std::int64_t{x} * s.channel_stride + c;
                for (int i = 0; i < least(L, count - x); ++i) store<L>(pixel + std::int64_t{i} * s.channel_stride, v[i]);
            }
        }
    });
}

template <int L>
static void from_channel_last(const Stage& s, const float* pixels, float* planes) {
    // Channels and rows ascend, so a vector that runs over its row's end is overwritten by the next.
    if (s.in_channels <= 4) {
        each_row(s, [&](std::int64_t to, std::int64_t from, int count) {
            for (int c = 0; c < s.in_channels; ++c)
                for (int x = 0; x < count; ++x)
                    planes[std::int64_t{c} * s.in_plane + to + x] = pixels[from + std::int64_t{x} * s.channel_stride + c];
        });
        return;
    }
    for (int c = 0; c < s.in_channels; c += L) {
        each_row(s, [&](std::int64_t to, std::int64_t from, int count) {
            for (int x = 0; x < count; x += L) {
                F<L> v[L];
                const float* pixel = pixels + from + std::int64_t{x} * s.channel_stride + c;
                for (int i = 0; i < L; ++i)
                    v[i] = x + i < count ? load<L>(pixel + std::int64_t{i} * s.channel_stride) : F<L>{};
                transpose<L>(v);
                for (int i = 0; i < least(L, s.in_channels - c); ++i) {
                    float* plane = planes + std::int64_t{c + i} * s.in_plane + to + x;
                    if (count - x >= L) {
                        store<L>(plane, v[i]);
                    } else {
                        for (int j = 0; j < count - x; ++j) plane[j] = v[i][j];
                    }
                }
            }
        });
    }
}
