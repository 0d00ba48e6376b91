// qsgd: fedtide/codec/baselines.py, which tells what is done and why.
#include <cfloat>
#include <cstring>
#include <vector>

#include "codec.h"

namespace fedtide::codec {

namespace {

constexpr int step_bits = 31;
constexpr double most_levels = 1 << 20;
constexpr int octaves = 40, per_octave = 16, deviations = 4;

int count_bits(std::int64_t d) { return bits_of(static_cast<Word>(d)); }  // of the number of non-zero levels

double sum_of(const std::vector<double>& values) {
    return pairwise_sum<double>([&](std::int64_t i) { return values[static_cast<std::size_t>(i)]; }, 0,
                                static_cast<std::int64_t>(values.size()));
}

// The length of a payload; rest: of signs and levels.
double length(std::int64_t d, std::int64_t nonzero, double rest, Subsets& subsets) {
    return static_cast<double>(step_bits + count_bits(d) + subsets.index_bits(d, nonzero)) + rest;
}

// The mean length of the code with s levels and some standard deviations: it is hardly ever longer.
double bits_at_most(const std::vector<double>& share, double s, Subsets& subsets) {
    const auto d = static_cast<std::int64_t>(share.size());
    std::vector<double> up_small, doubt_small, levels_large, doubt_large;
    for (std::vector<double>* each : {&up_small, &doubt_small, &levels_large, &doubt_large})
        each->reserve(share.size());
    for (const double each : share) {
        const double scaled = s * each;
        const auto large = static_cast<Word>(scaled);
        const double up = scaled - static_cast<double>(large), doubt = up * (1 - up);
        if (large == 0) {
            up_small.push_back(up);
            doubt_small.push_back(doubt);
        } else {
            const int bits = 2 * bits_of(large) - 1, longer = 2 * bits_of(large + 1) - 1 - bits;
            levels_large.push_back(bits + longer * up);
            doubt_large.push_back(longer * longer * doubt);
        }
    }
    const auto large = static_cast<std::int64_t>(levels_large.size());
    const double nonzero = static_cast<double>(large) + sum_of(up_small);
    const double spread = deviations * std::sqrt(sum_of(doubt_small));
    const double levels = sum_of(levels_large) + deviations * std::sqrt(sum_of(doubt_large));
    const auto least = std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(nonzero - spread)), 0);
    const auto most = std::min(static_cast<std::int64_t>(std::ceil(nonzero + spread)), d);
    const double rest = static_cast<double>(most) + levels + static_cast<double>(most - large);
    return length(d, std::min(std::max(d / 2, least), most), rest, subsets);
}

// The largest s up to most whose code fits almost surely; share: |u_i| / |u|.
double levels_for(const std::vector<double>& share, double budget, double most, Subsets& subsets) {
    if (bits_at_most(share, most, subsets) <= budget) return most;
    const auto at = [&](int step) { return most * std::pow(2.0, static_cast<double>(step) / per_octave); };
    int fits = -octaves * per_octave, misses = 0;
    while (misses - fits > 1) {
        const int middle = (fits + misses - 1) / 2;  // rounded down: both are not positive
        (bits_at_most(share, at(middle), subsets) <= budget ? fits : misses) = middle;
    }
    return at(fits);
}

}  // namespace

std::string encode_qsgd(const float* update, std::int64_t d, double budget, int num_levels, BitGenerator& draws,
                        Subsets& subsets, std::int64_t* bits) {
    const auto count = static_cast<std::size_t>(d);
    std::vector<double> size(count);
    for (std::size_t i = 0; i < count; ++i) size[i] = std::fabs(static_cast<double>(update[i]));
    const auto square = [&](std::int64_t i) {
        return size[static_cast<std::size_t>(i)] * size[static_cast<std::size_t>(i)];
    };
    const double norm = std::min(std::sqrt(pairwise_sum<double>(square, 0, d)), static_cast<double>(FLT_MAX));
    double s = 1;
    if (norm > 0) {
        std::vector<double> share(count);
        for (std::size_t i = 0; i < count; ++i) share[i] = size[i] / norm;
        s = levels_for(share, budget, num_levels, subsets);
    }
    std::vector<std::int64_t> level(count);
    std::vector<std::uint8_t> chosen(count);
    while (true) {
        const auto step = static_cast<float>(std::min(norm / s, static_cast<double>(FLT_MAX)));
        std::int64_t n = 0, level_bits = 0;
        for (std::size_t i = 0; i < count; ++i) {
            level[i] = step > 0
                           ? static_cast<std::int64_t>(std::min(
                                 std::floor(size[i] / static_cast<double>(step) + draws.random()), 2 * most_levels))
                           : 0;
            chosen[i] = level[i] != 0;
            n += chosen[i];
            if (level[i]) level_bits += 2 * bits_of(static_cast<Word>(level[i])) - 1;
        }
        if (length(d, n, static_cast<double>(n + level_bits), subsets) <= budget) {
            std::string payload;
            BitWriter writer(payload);
            std::uint32_t pattern;
            std::memcpy(&pattern, &step, sizeof pattern);
            writer.put(pattern, step_bits);
            writer.put(static_cast<Word>(n), count_bits(d));
            const std::int64_t set_bits = subsets.index_bits(d, n);
            if (n > 0 && n < d) writer.put(subsets.rank(chosen.data(), d), set_bits);
            for (std::size_t i = 0; i < count; ++i)
                if (level[i]) writer.put(Word{update[i] < 0}, 1);
            for (std::size_t i = 0; i < count; ++i)
                if (level[i]) writer.put(static_cast<Word>(level[i]), 2 * bits_of(static_cast<Word>(level[i])) - 1);
            writer.end();
            *bits = step_bits + count_bits(d) + set_bits + n + level_bits;
            return payload;
        }
        s /= 2;
        if (step == FLT_MAX) std::fill(size.begin(), size.end(), 0.0);  // the update is beyond what can be sent
    }
}

Refusal decode_qsgd(Payload payload, std::int64_t payload_bits, std::int64_t d, std::int64_t n, Subsets& subsets,
                    float* update) {
    BitReader reader(payload.bytes, payload.size);
    const auto pattern = static_cast<std::uint32_t>(reader.get(step_bits));
    float step;
    std::memcpy(&step, &pattern, sizeof step);
    reader.get(count_bits(d));  // n, which the caller has compared with the length
    const std::int64_t set_bits = subsets.index_bits(d, n);
    Number number = reader.number(set_bits);
    std::vector<std::uint8_t> negative(static_cast<std::size_t>(n));
    for (std::uint8_t& each : negative) each = static_cast<std::uint8_t>(reader.get(1));
    std::int64_t left = payload_bits - step_bits - count_bits(d) - set_bits - n;
    constexpr auto most = static_cast<std::int64_t>(2 * most_levels);
    const int longest = bits_of(static_cast<Word>(most));
    std::vector<std::int64_t> level(static_cast<std::size_t>(n));
    bool beyond = false;
    for (std::int64_t& each : level) {
        int zeros = 0;
        while (zeros < longest && zeros < left && !reader.get(1)) ++zeros;
        if (zeros == longest || zeros == left || 2 * zeros + 1 > left) return Refusal::code;
        each = static_cast<std::int64_t>(Word{1} << zeros | reader.get(zeros));
        left -= 2 * zeros + 1;
        beyond = beyond || each > most;
    }
    if (left) return Refusal::goes_on;
    if (beyond) return Refusal::levels;
    std::vector<std::uint8_t> chosen(static_cast<std::size_t>(d), n == d);
    if (n > 0 && n < d && !subsets.unrank(std::move(number), n, d, chosen.data())) return Refusal::set;
    std::size_t at = 0;
    for (std::int64_t i = 0; i < d; ++i) {
        update[i] = 0;
        if (!chosen[static_cast<std::size_t>(i)]) continue;
        const double size =
            std::min(static_cast<double>(level[at]) * static_cast<double>(step), static_cast<double>(FLT_MAX));
        update[i] = static_cast<float>(negative[at++] ? -size : size);
    }
    return Refusal::none;
}

}  // namespace fedtide::codec
