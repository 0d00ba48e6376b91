// The input gradient of a convolution, gathered: what all output channels give to one patch is summed in registers and added
// to memory once, while conv_backward.h adds to memory what each channel gives. Another order of the same sums.
#pragma once

// Appends (place[i], slope[i] * scale) where choice[i] is the wanted one; returns the new length.
static int append_chosen(const float* slope, const std::int32_t* choice, const std::int32_t* place, std::int32_t wanted,
                         int count, float scale, std::int32_t* offset, float* value, int length) {
#if defined(__AVX512F__)
    for (int i = 0; i < count; i += 16) {
        const __mmask16 some = _mm512_cmpeq_epi32_mask(_mm512_loadu_si512(choice + i), _mm512_set1_epi32(wanted));
        const __m512 g = _mm512_mul_ps(_mm512_loadu_ps(slope + i), _mm512_set1_ps(scale));
        _mm512_storeu_ps(value + length, _mm512_maskz_compress_ps(some, g));
        _mm512_storeu_si512(offset + length, _mm512_maskz_compress_epi32(some, _mm512_loadu_si512(place + i)));
        length += __builtin_popcount(some);
    }
#elif defined(__AVX2__)
    const auto at = [](const std::int32_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); };
    for (int i = 0; i < count; i += 8) {
        const __m256i some = _mm256_cmpeq_epi32(at(choice + i), _mm256_set1_epi32(wanted));
        const int set = _mm256_movemask_ps(_mm256_castsi256_ps(some));
        const __m256i lanes = at(compressing.lane[set]);
        const __m256 g = _mm256_mul_ps(_mm256_loadu_ps(slope + i), _mm256_set1_ps(scale));
        _mm256_storeu_ps(value + length, _mm256_permutevar8x32_ps(g, lanes));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(offset + length), _mm256_permutevar8x32_epi32(at(place + i), lanes));
        length += __builtin_popcount(static_cast<unsigned>(set));
    }
#else
    for (int i = 0; i < count; ++i) {
        value[length] = slope[i] * scale;
        offset[length] = place[i];
        length += choice[i] == wanted;
    }
#endif
    return length;
}

// A list for each patch, of the channels that chose it: (place of the channel's weights, g). `count` channels of `channel`
// have not been dropped; begin has one element more than there are patches. Returns the number of patches.
static int list_patches(const Stage& s, const float* slope, const std::int32_t* choice, const std::int32_t* channel, int count,
                        float* last_value, float* last_choice, std::int32_t* place, std::int32_t* patch, std::int32_t* begin,
                        std::int32_t* offset, float* value) {
    const auto row = [&](const float* planes) {
        return [=, &s](int i) { return planes + std::int64_t{channel[i]} * s.out_plane; };
    };
    turn(count, s.out_plane, row(slope), F<W>{}, last_value, s.out_stride);
    turn(count, s.out_plane, row(reinterpret_cast<const float*>(choice)), no_choice(), last_choice, s.out_stride);
    for (int i = 0; i < count; ++i) place[i] = channel[i] * s.kernel * s.weight_row;
    int patches = 0, length = 0;
    for (int block = 0; block < s.out_height * s.out_width; ++block) {
        const std::int64_t from = std::int64_t{block} * s.out_stride;
        for (int phase = 0; phase < s.pool * s.pool; ++phase) {
            begin[patches] = length;
            patch[patches] = s.patch_base[block] + s.phase_offset[phase];
            length = append_chosen(last_value + from, reinterpret_cast<const std::int32_t*>(last_choice + from), place,
                                   patch[patches], count, s.drops ? s.keep_scale : 1.0f, offset, value, length);
            patches += length > begin[patches];
        }
    }
    begin[patches] = length;
    return patches;
}

template <int L>
static void gather_input_gradient(const Stage& s, const Lists& lists, const std::int32_t* patch, const float* weight, float* target) {
    add_patches<L>(s, lists, weight, s.weight_row, target, std::int64_t{s.padded_width} * s.channel_stride,
                   [&](int i) { return patch[i]; });
}
