// A convolution with the channel dropout, pool and ReLU behind it, for one sample.
//
// The lanes hold pooled output positions, in one line without row ends; the accumulators hold, for several output channels,
// the q x q positions ("phases") of the pool blocks. So the maximum, its place and the ReLU are vertical operations on
// registers, the unpooled output never reaches memory, and only the last vector of a plane can have empty lanes.
// For that, the operand of a tap and phase must be contiguous: the input is first copied once per horizontal shift, taking
// every q-th column, even and odd (mod q) rows apart.
#pragma once

// Copies count floats in vectors of L, running over the end: the next row to be written lies there, or a tail.
template <int L>
FEDTIDE_INLINE void copy_over(float* to, const float* from, int count) {
    int i = 0;
    do {
        store<L>(to + i, load<L>(from + i));
        i += L;
    } while (i < count);
}

// Deinterleaves a row by Q: out[phase * pitch + i] = row[Q * i + phase]. May run over the end of both.
template <int Q>
FEDTIDE_INLINE void split_columns(const float* row, int width, float* out, int pitch) {
    if constexpr (Q == 1) {
        copy_over<4>(out, row, width);
    } else if constexpr (Q == 2) {
        for (int i = 0; 2 * i < width; i += W) store<W>(out + i, evens(load<W>(row + 2 * i), load<W>(row + 2 * i + W)));
        out += pitch;
        for (int i = 0; 2 * i < width; i += W) store<W>(out + i, odds(load<W>(row + 2 * i), load<W>(row + 2 * i + W)));
    } else {
        for (int x = 0; x < width; ++x) out[x % Q * pitch + x / Q] = row[x];
    }
}

// copies[shift][row parity][channel][row][column] = padded input[channel][Q row + parity][Q column + shift].
// A plane is padded and split completely before it is copied: a load right behind two stores that it overlaps would wait.
template <int Q, int L>
static void make_copies(const Stage& s, const float* planes, float* copies) {
    const int shifts = s.kernel + Q - 1, rows = Q * s.out_height + s.kernel - 1;
    const std::int64_t next_shift = std::int64_t{Q} * s.copy_block;
    float* padded = copies + next_shift * shifts;  // scratch: one padded row, then the split plane
    float* split = padded + s.padded_width + 64;
    const int split_pitch = s.padded_width / Q + 1, split_row = Q * split_pitch;
    const bool direct = Q == 1 && s.padding == 0;
    for (int x = 0; x < s.padding; ++x) padded[x] = 0;
    for (int c = 0; c < s.in_channels; ++c) {
        const float* plane = planes + std::int64_t{c} * s.in_plane;
        for (int y = 0; y < rows && !direct; ++y) {
            const int source = y - s.padding;
            float* to = split + std::int64_t{y} * split_row;
            if (source < 0 || source >= s.in_height) {
                for (int x = 0; x < split_row; ++x) to[x] = 0;
                continue;
            }
            const float* row = plane + std::int64_t{source} * s.in_width;
            if (s.padding > 0) {
                copy_over<L>(padded + s.padding, row, s.in_width);
                for (int x = 0; x < s.padding; ++x) padded[s.padding + s.in_width + x] = 0;
                row = padded;
            }
            split_columns<Q>(row, s.padded_width, to, split_pitch);
        }
        const float* from = direct ? plane : split;
        const std::int64_t pitch = direct ? s.in_width : split_row;
        for (int y = 0; y < rows; ++y, from += pitch) {
            float* to = copies + std::int64_t{y % Q} * s.copy_block + std::int64_t{c} * s.copy_plane + y / Q * s.out_width;
            int shift = 0;
            for (; shift + Q <= shifts; shift += Q) {
#pragma GCC unroll 3
                for (int phase = 0; phase < Q; ++phase, to += next_shift)
                    copy_over<L>(to, from + phase * split_pitch + shift / Q, s.out_width);
            }
            for (int phase = 0; shift + phase < shifts; ++phase, to += next_shift)
                copy_over<L>(to, from + phase * split_pitch + shift / Q, s.out_width);
        }
    }
}

template <int Q>
static void make_copies(const Stage& s, const float* planes, float* copies) {
    if (W > 4 && s.out_width > 4) {
        if (W > 8 && s.out_width > 8)
            make_copies<Q, W>(s, planes, copies);
        else
            make_copies<Q, (W > 8 ? 8 : W)>(s, planes, copies);
    } else {
        make_copies<Q, 4>(s, planes, copies);
    }
}

// What the tiles of one sample share.
struct Forward {
    const float *copies, *weight, *bias;
    float scale;           // of channel dropout
    float* out;            // planes
    std::int32_t* choice;  // planes: offset of the patch that gave the maximum, negative without gradient; or null
};

// CH output channels at V vectors of pooled positions from `position` on. GREY: the input has one channel.
template <int Q, int V, int CH, bool GREY>
static void conv_tile(const Stage& s, const Forward& f, const std::int32_t* channel, int position) {
    constexpr int phases = Q * Q, slots = phases * V;
    F<W> sum[CH][slots];
    const float* weight[CH];
#pragma GCC unroll 8
    for (int c = 0; c < CH; ++c) {
        weight[c] = f.weight + std::int64_t{channel[c]} * s.kernel * s.weight_row;
#pragma GCC unroll 16
        for (int slot = 0; slot < slots; ++slot) sum[c][slot] = splat<W>(f.bias[channel[c]]);
    }
    const int taps = s.kernel * s.kernel, plane = s.copy_plane;
    const std::int64_t channels = GREY ? 1 : s.in_channels;
    const float* copies = f.copies + position;
    for (const Tap* tap = s.taps; tap != s.taps + taps; ++tap) {
        const float* from[phases];
        for (int phase = 0; phase < phases; ++phase) from[phase] = copies + tap->input[phase];
        const std::int64_t first = tap->weight;
        for (std::int64_t i = 0; i < channels; ++i) {
            F<W> w[CH];
#pragma GCC unroll 8
            for (int c = 0; c < CH; ++c) w[c] = splat<W>(weight[c][first + i]);
#pragma GCC unroll 16
            for (int slot = 0; slot < slots; ++slot) {
                const F<W> x = load<W>(from[slot / V] + i * plane + slot % V * W);
#pragma GCC unroll 8
                for (int c = 0; c < CH; ++c) sum[c][slot] += x * w[c];
            }
        }
    }
    const F<W> scale = splat<W>(f.scale), zero = {};
#pragma GCC unroll 8
    for (int c = 0; c < CH; ++c) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) {
            const std::int64_t place = std::int64_t{channel[c]} * s.out_plane + position + v * W;
            F<W> best = sum[c][v] * scale;
            I<W> offset = splat_int<W>(s.phase_offset[0]);
#pragma GCC unroll 8
            for (int phase = 1; phase < phases; ++phase) {  // the first maximum stays
                const F<W> other = sum[c][phase * V + v] * scale;
                const I<W> larger = other > best;
                best = larger ? other : best;
                offset = larger ? splat_int<W>(s.phase_offset[phase]) : offset;
            }
            offset += load_ints<W>(s.patch_base + position + v * W);
            if (s.relu) {
                const I<W> off = best <= zero;
                best = off ? zero : best;
                offset = off ? splat_int<W>(-1) : offset;
            }
            store<W>(f.out + place, best);
            if (f.choice) store_ints<W>(f.choice + place, offset);
        }
    }
}

// As many channels at once as the registers hold; `count` is at most that.
template <int Q, int V>
static constexpr int max_channels() {
    constexpr int sums = FEDTIDE_REGISTERS >= 32 ? 24 : 12;
    return sums / (Q * Q * V) < 1 ? 1 : (sums / (Q * Q * V) > 8 ? 8 : sums / (Q * Q * V));
}

template <int Q, int V, int CH = max_channels<Q, V>()>
FEDTIDE_INLINE void conv_channels(const Stage& s, const Forward& f, const std::int32_t* channel, int count, int position) {
    if (count == CH) {
        if (s.in_channels == 1) return conv_tile<Q, V, CH, true>(s, f, channel, position);
        return conv_tile<Q, V, CH, false>(s, f, channel, position);
    }
    if constexpr (CH > 1) conv_channels<Q, V, CH - 1>(s, f, channel, count, position);
}

template <int Q, int V>
static void conv_block(const Stage& s, const Forward& f, const std::int32_t* channel, int count, int position) {
    const int groups = (count + max_channels<Q, V>() - 1) / max_channels<Q, V>();
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
