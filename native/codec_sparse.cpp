// sparse_quantized: fedtide/codec/sparse_quantized.py; its twin is tests/twins/sparse_quantized.py.
#include <cfloat>
#include <cstring>
#include <numeric>
#include <vector>

#include "codec.h"

namespace fedtide::codec {

namespace {

constexpr int norm_bits = 31;  // a norm is not negative: its sign bit is not sent
constexpr std::uint32_t largest_norm = 0x7F7FFFFF;

// Marks the first r of a random permutation, Generator.permutation(d)[:r].
void choose(std::int64_t d, std::int64_t r, BitGenerator& draws, std::uint8_t* chosen) {
    std::vector<std::uint32_t> order(static_cast<std::size_t>(d));
    std::iota(order.begin(), order.end(), 0u);
    for (std::int64_t i = d - 1; i > 0; --i)
        std::swap(order[static_cast<std::size_t>(i)], order[draws.up_to(static_cast<std::uint32_t>(i))]);
    for (std::int64_t i = 0; i < r; ++i) chosen[order[static_cast<std::size_t>(i)]] = 1;
}

// The Euclidean norm, rounded up, so that no element exceeds it.
float norm_of(const std::vector<float>& kept) {
    const auto square = [&](std::int64_t i) {
        const double value = kept[static_cast<std::size_t>(i)];
        return value * value;
    };
    const double sum = pairwise_sum<double>(square, 0, static_cast<std::int64_t>(kept.size()));
    const double exact = std::min(std::sqrt(sum), static_cast<double>(FLT_MAX));
    const float norm = static_cast<float>(exact);
    return static_cast<double>(norm) < exact ? std::nextafter(norm, FLT_MAX) : norm;
}

}  // namespace

std::string encode_sparse(const Sparse& shape, const float* update, BitGenerator& draws, Subsets& subsets) {
    const std::int64_t d = shape.num_parameters, r = shape.num_kept;
    std::string payload;
    payload.reserve(static_cast<std::size_t>((d + r * shape.element_bits) / 8 + 16));
    BitWriter writer(payload);
    std::vector<float> kept;
    if (r == d) {
        kept.assign(update, update + d);
    } else {
        std::vector<std::uint8_t> chosen(static_cast<std::size_t>(d));
        choose(d, r, draws, chosen.data());
        kept.resize(static_cast<std::size_t>(r) +
                    1);  // one to spare: written without asking, since which are kept is random
        std::size_t at = 0;
        for (std::int64_t i = 0; i < d; ++i) {
            kept[at] = update[i];
            at += chosen[static_cast<std::size_t>(i)];
        }
        kept.pop_back();
        writer.put(subsets.rank(chosen.data(), d), subsets.index_bits(d, r));
    }
    const float norm = norm_of(kept);
    std::uint32_t pattern;
    std::memcpy(&pattern, &norm, sizeof pattern);
    writer.put(pattern, norm_bits);
    const double scale = norm > 0 ? shape.num_levels / static_cast<double>(norm) : 0;
    const int stored = std::min(shape.element_bits, 16);
    const std::int64_t limit = std::int64_t{1} << (stored - 1);
    for (const float value : kept) {
        std::int64_t level = 0;
        if (norm > 0) {
            const double scaled = std::fabs(static_cast<double>(value)) * scale;  // at most num_levels, and a rounding
            const auto lower = static_cast<std::int64_t>(scaled);
            level = std::min<std::int64_t>(lower + (draws.random() < scaled - static_cast<double>(lower)),
                                           shape.num_levels);
            const std::int64_t sign = -static_cast<std::int64_t>(std::signbit(value));
            level = (level ^ sign) - sign;
        }
        writer.put(static_cast<Word>(std::clamp(level, -limit, limit - 1)), shape.element_bits);
    }
    writer.end();
    return payload;
}

Refusal decode_sparse(const Sparse& shape, Payload payload, Subsets& subsets, float* update) {
    const std::int64_t d = shape.num_parameters, r = shape.num_kept;
    BitReader reader(payload.bytes, payload.size);
    std::vector<std::uint8_t> chosen(static_cast<std::size_t>(d), 1);
    Number number;
    if (r < d) number = reader.number(subsets.index_bits(d, r));
    const auto pattern = static_cast<std::uint32_t>(reader.get(norm_bits));
    if (pattern > largest_norm) return Refusal::norm;
    if (r < d && !subsets.unrank(std::move(number), r, d, chosen.data())) return Refusal::set;
    float norm;
    std::memcpy(&norm, &pattern, sizeof norm);
    const double unit = static_cast<double>(norm) / shape.num_levels;
    const int spare = 64 - shape.element_bits;
    for (std::int64_t i = 0; i < d; ++i) {
        update[i] = 0;
        if (!chosen[static_cast<std::size_t>(i)]) continue;
        const auto level =
            static_cast<std::int64_t>(reader.get(shape.element_bits) << spare) >> spare;  // with its sign
        if (level > shape.num_levels || level < -shape.num_levels) return Refusal::levels;
        update[i] = static_cast<float>(unit * static_cast<double>(level));
    }
    return Refusal::none;
}

}  // namespace fedtide::codec
