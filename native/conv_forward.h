// A convolution with the channel dropout, pool and ReLU behind it, for one sample.
//
// The lanes hold pooled output positions, in one line without row ends; the accumulators hold, for several output channels,
// the q x q positions ("phases") of the pool blocks. So the maximum, its place and the ReLU are vertical operations on
// registers, the unpooled output never reaches memory, and only the last vector of a plane can have empty lanes.
// For that, the operand of a tap and phase must be contiguous: the input is first copied once per horizontal shift, taking
// every q-th column, even and odd (mod q) rows apart.
#pragma once

// Copies count floats in vectors of L, running over the end: the next row to be written lies there, or a tail.
// ONE: one vector is enough.
template <int L, bool ONE>
FEDTIDE_INLINE void copy_over(float* to, const float* from, int count) {
    int i = 0;
    do {
        store<L>(to + i, load<L>(from + i));
        i += L;
    } while (!ONE && i < count);
}

// Copies count floats and touches no others.
FEDTIDE_INLINE void copy_exactly(float* to, const float* from, int count) {
    int i = 0;
    for (; i + 4 <= count; i += 4) store<4>(to + i, load<4>(from + i));
    for (; i < count; ++i) to[i] = from[i];
}

// Copies a plane into the middle of a padded one; the margins hold the arena's zeros.
static void pad_plane(const Stage& s, const float* plane, float* padded) {
    for (int y = 0; y < s.in_height; ++y)
        copy_exactly(padded + std::int64_t{y + s.padding} * s.padded_width + s.padding, plane + std::int64_t{y} * s.in_width,
                     s.in_width);
}

// One row of the padded input for shifts 0 .. shifts: to[shift * next + x] = row[Q x + shift]. May run over the end of all.
template <int Q, int L, bool ONE>
FEDTIDE_INLINE void copy_row(float* to, std::int64_t next, const float* row, int shifts, int width) {
    if constexpr (Q == 1) {
        for (int shift = 0; shift < shifts; ++shift, to += next) copy_over<L, ONE>(to, row + shift, width);
    } else if constexpr (Q == 2) {
        int shift = 0;
        for (; shift + 2 <= shifts; shift += 2, to += 2 * next, row += 2) {
            int x = 0;
            do {
                const F<L> a = load<L>(row + 2 * x), b = load<L>(row + 2 * x + L);
                store<L>(to + x, evens(a, b));
                store<L>(to + next + x, odds(a, b));
                x += L;
            } while (!ONE && x < width);
        }
        if (shift < shifts)
            for (int x = 0; x < width; x += L) store<L>(to + x, evens(load<L>(row + 2 * x), load<L>(row + 2 * x + L)));
    } else {
        for (int shift = 0; shift < shifts; ++shift, to += next)
            for (int x = 0; x < width; ++x) to[x] = row[Q * x + shift];
    }
}

// copies[shift][row parity][channel][row][column] = padded input[channel][Q row + parity][Q column + shift].
// A plane is padded one channel ahead: a load right behind two stores that it overlaps would wait.
template <int Q, int L, bool ONE>
static void make_copies(const Stage& s, const float* planes, float* padded, float* copies) {
    const int shifts = s.kernel + Q - 1, rows = Q * s.out_height + s.kernel - 1;
    const std::int64_t next_shift = std::int64_t{Q} * s.copy_block, padded_plane = std::int64_t{s.padded_height} * s.padded_width;
    if (s.padding > 0) pad_plane(s, planes, padded);
    for (int c = 0; c < s.in_channels; ++c) {
        const float* row = planes + std::int64_t{c} * s.in_plane;
        if (s.padding > 0) {
            if (c + 1 < s.in_channels) pad_plane(s, row + s.in_plane, padded + (c + 1) % 2 * padded_plane);
            row = padded + c % 2 * padded_plane;
        }
        float* to = copies + std::int64_t{c} * s.copy_plane;
        for (int y = 0; y < rows; ++y, row += s.padded_width)
            copy_row<Q, L, ONE>(to + y % Q * std::int64_t{s.copy_block} + y / Q * s.out_width, next_shift, row, shifts, s.out_width);
    }
}

template <int Q>
static void make_copies(const Stage& s, const float* planes, float* padded, float* copies) {
    constexpr int eight = W >= 8 ? 8 : 4;
    if (s.out_width <= 4)
        make_copies<Q, 4, true>(s, planes, padded, copies);
    else if (s.out_width <= eight)
        make_copies<Q, eight, true>(s, planes, padded, copies);
    else if (s.out_width <= 16)
        make_copies<Q, eight, false>(s, planes, padded, copies);
    else
        make_copies<Q, W, false>(s, planes, padded, copies);
}

// What the tiles of one sample share.
struct Forward {
    const float *copies, *weight, *bias;
    float scale;           // of channel dropout while training
    float* out;            // planes
    std::int32_t* choice;  // planes: offset of the patch that gave the maximum, negative without gradient; null: only scores are wanted
};

// CH output channels at V vectors of pooled positions from `position` on. GREY: the input has one channel.
// ROWS: rows of the pool block that are summed at once, Q or 1.
template <int Q, int V, int CH, bool GREY, int ROWS>
static void conv_tile(const Stage& s, const Forward& f, const std::int32_t* channel, int position) {
    constexpr int phases = ROWS * Q, slots = phases * V;
    const std::int64_t next_shift = std::int64_t{Q} * s.copy_block, plane = s.copy_plane;
    const std::int64_t channels = GREY ? 1 : s.in_channels, next_weight = GREY ? 1 : s.channel_stride;
    const F<W> scale = splat<W>(f.scale), zero = {};
    F<W> best[CH][V];
    I<W> offset[CH][V] = {};
#pragma GCC unroll 3
    for (int dy = 0; dy < Q; dy += ROWS) {
        F<W> sum[CH][slots];
        const float* weight[CH];
#pragma GCC unroll 8
        for (int c = 0; c < CH; ++c) {
            weight[c] = f.weight + std::int64_t{channel[c]} * s.kernel * s.weight_row;
#pragma GCC unroll 16
            for (int slot = 0; slot < slots; ++slot) sum[c][slot] = splat<W>(f.bias[channel[c]]);
        }
        const std::int32_t* row_start = s.row_start + dy;
        for (int ky = 0; ky < s.kernel; ++ky, ++row_start) {
            const float* from[phases];
#pragma GCC unroll 16
            for (int phase = 0; phase < phases; ++phase)
                from[phase] = pinned(f.copies + position + row_start[phase / Q] + phase % Q * next_shift);
            for (std::int64_t kx = 0, shift = 0; kx < s.kernel; ++kx, shift += next_shift) {
                for (std::int64_t i = 0; i < channels; ++i) {
                    F<W> w[CH];
#pragma GCC unroll 8
                    for (int c = 0; c < CH; ++c) w[c] = splat<W>(weight[c][kx * next_weight + i]);
#pragma GCC unroll 16
                    for (int slot = 0; slot < slots; ++slot) {
                        const F<W> x = load<W>(from[slot / V] + shift + i * plane + slot % V * W);
#pragma GCC unroll 8
                        for (int c = 0; c < CH; ++c) sum[c][slot] += x * w[c];
                    }
                }
            }
#pragma GCC unroll 8
            for (int c = 0; c < CH; ++c) weight[c] = pinned(weight[c] + s.weight_row);
        }
        if (!f.choice) {  // scores only: nothing to remember, nothing dropped
#pragma GCC unroll 8
            for (int c = 0; c < CH; ++c) {
#pragma GCC unroll 16
                for (int slot = 0; slot < slots; ++slot) {
                    F<W>& most = best[c][slot % V];
                    most = dy + slot / V == 0 ? sum[c][slot] : sum[c][slot] > most ? sum[c][slot] : most;
                }
            }
            continue;
        }
#pragma GCC unroll 8
        for (int c = 0; c < CH; ++c) {
#pragma GCC unroll 16
            for (int slot = 0; slot < slots; ++slot) {  // the first maximum stays
                const int v = slot % V, phase = dy * Q + slot / V;
                const F<W> other = sum[c][slot] * scale;
                const I<W> place = splat_int<W>(s.phase_offset[phase]);
                if (phase == 0) {
                    best[c][v] = other;
                    offset[c][v] = place;
                    continue;
                }
                const I<W> larger = other > best[c][v];
                best[c][v] = larger ? other : best[c][v];
                offset[c][v] = larger ? place : offset[c][v];
            }
        }
    }
#pragma GCC unroll 8
    for (int c = 0; c < CH; ++c) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const std::int64_t place = std::int64_t{channel[c]} * s.out_plane + position + v * W;
            const I<W> off = s.relu ? best[c][v] <= zero : I<W>{};
            store<W>(f.out + place, off ? zero : best[c][v]);
            if (!f.choice) continue;
            const I<W> patch = offset[c][v] + load_ints<W>(s.patch_base + position + v * W);
            store_ints<W>(f.choice + place, off ? splat_int<W>(-1) : patch);
        }
    }
}

// As many channels at once as the registers hold; `count` is at most that.
template <int Q, int V>
static constexpr int max_channels() {
    constexpr int sums = FEDTIDE_REGISTERS >= 32 ? 24 : 12;
    return sums / (Q * Q * V) < 1 ? 1 : (sums / (Q * Q * V) > 8 ? 8 : sums / (Q * Q * V));
}

template <int Q, int V, int ROWS = Q, int CH = max_channels<Q, V>()>
FEDTIDE_INLINE void conv_channels(const Stage& s, const Forward& f, const std::int32_t* channel, int count, int position) {
    if (count == CH) {
        if (s.in_channels == 1) return conv_tile<Q, V, CH, true, ROWS>(s, f, channel, position);
        return conv_tile<Q, V, CH, false, ROWS>(s, f, channel, position);
    }
    if constexpr (CH > 1) conv_channels<Q, V, ROWS, CH - 1>(s, f, channel, count, position);
}

template <int Q, int V>
static void conv_block(const Stage& s, const Forward& f, const std::int32_t* channel, int count, int position) {
    constexpr int most = max_channels<Q, V>();
    if constexpr (Q == 2 && V == 1 && most == 3) {
        // Two channels are too few sums to hide the latency: 3 + 5 or 5 + 5, row by row of the pool block, not 3 + 3 + 2 or 3 + 3 + 2 + 2.
        for (; count % 3 == 1 ? count >= 10 : count % 3 == 2 && count >= 5; count -= 5, channel += 5)
            conv_channels<2, 1, 1, 5>(s, f, channel, 5, position);
    }
    const int groups = (count + most - 1) / most;
    for (int group = 0; group < groups; ++group) {  // even groups: 13 channels are 5 + 4 + 4, not 6 + 6 + 1
        const int size = (count + groups - 1 - group) / groups;
        conv_channels<Q, V>(s, f, channel, size, position);
        channel += size;
    }
}

// Only the listed channels are computed; the others have been dropped.
static void conv_forward(const Stage& s, const Forward& f, const std::int32_t* channel, int count) {
    const int vectors = s.out_plane / W;
    if (s.pool == 1) {
        int v = 0;
        for (; v + 4 <= vectors; v += 4) conv_block<1, 4>(s, f, channel, count, v * W);
        if (vectors - v == 3) conv_block<1, 3>(s, f, channel, count, v * W);
        if (vectors - v == 2) conv_block<1, 2>(s, f, channel, count, v * W);
        if (vectors - v == 1) conv_block<1, 1>(s, f, channel, count, v * W);
    } else {
        for (int v = 0; v < vectors; ++v) {
            if (s.pool == 2)
                conv_block<2, 1>(s, f, channel, count, v * W);
            else
                conv_block<3, 1>(s, f, channel, count, v * W);
        }
    }
}
