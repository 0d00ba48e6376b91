#include "columns.h"

#include <algorithm>
#include <cmath>
#include <vector>

// Everything is inlined into what is called at last, which is compiled once more for processors with AVX2: whole numbers and
// single roundings, so that both give the same bits.
#define FEDTIDE_INLINE static inline __attribute__((always_inline))
#if defined(FEDTIDE_X86)
#define FEDTIDE_WIDE __attribute__((target("avx2")))
#endif

namespace fedtide {
namespace {

constexpr int lanes = 16;  // addresses that are drawn at a time

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011), one address in each lane.
struct Words {
    std::uint32_t word[4][lanes];
};

FEDTIDE_INLINE void philox(std::uint32_t (&k0)[lanes], std::uint32_t (&k1)[lanes], Words& c) {
    for (int round = 0; round < 10; ++round)
        for (int l = 0; l < lanes; ++l) {
            const std::uint64_t a = std::uint64_t{0xD2511F53u} * c.word[0][l], b = std::uint64_t{0xCD9E8D57u} * c.word[2][l];
            c.word[0][l] = static_cast<std::uint32_t>(b >> 32) ^ c.word[1][l] ^ k0[l];
            c.word[2][l] = static_cast<std::uint32_t>(a >> 32) ^ c.word[3][l] ^ k1[l];
            c.word[1][l] = static_cast<std::uint32_t>(b);
            c.word[3][l] = static_cast<std::uint32_t>(a);
            k0[l] += 0x9E3779B9u;
            k1[l] += 0xBB67AE85u;
        }
}

FEDTIDE_INLINE std::uint32_t low(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
FEDTIDE_INLINE std::uint32_t high(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
FEDTIDE_INLINE std::uint64_t joined(std::uint32_t low, std::uint32_t high) { return std::uint64_t{high} << 32 | low; }
FEDTIDE_INLINE double unit(std::uint32_t low, std::uint32_t high) {
    return static_cast<double>(static_cast<std::int64_t>(joined(low, high) >> 11)) * 0x1p-53;
}

// The words at these addresses; lanes beyond the last address repeat it.
template <class Third, class Fourth>
FEDTIDE_INLINE void words(Column key, Column number, Third third, Fourth fourth, std::size_t first, std::size_t count, Words& c) {
    std::uint32_t k0[lanes], k1[lanes];
    for (int l = 0; l < lanes; ++l) {
        const std::size_t i = std::min(first + static_cast<std::size_t>(l), count - 1);
        k0[l] = low(key.at(i));
        k1[l] = high(key.at(i));
        c.word[0][l] = low(number.at(i));
        c.word[1][l] = high(number.at(i));
        c.word[2][l] = third(i);
        c.word[3][l] = fourth(i);
    }
    philox(k0, k1, c);
}

FEDTIDE_INLINE int filled(std::size_t first, std::size_t count) {
    return static_cast<int>(std::min(count - first, static_cast<std::size_t>(lanes)));
}

// The labels at these places, from 0 to the sum of all weights, to which rounding may bring a place.
FEDTIDE_INLINE void labels_at(const Urn& urn, const double (&place)[lanes], std::int64_t (&label)[lanes]) {
    const int last = urn.num_labels - 1;
    if (last <= 32) {
        for (int l = 0; l < lanes; ++l) label[l] = 0;
        for (int j = 0; j < last; ++j)
            for (int l = 0; l < lanes; ++l) label[l] += place[l] >= urn.ends[j];
    } else {
        for (int l = 0; l < lanes; ++l) label[l] = std::upper_bound(urn.ends, urn.ends + last, place[l]) - urn.ends;
    }
}

FEDTIDE_INLINE void lead_here(Column key, Column index, std::uint32_t place, std::size_t count, std::uint64_t* next) {
    Words c;
    for (std::size_t first = 0; first < count; first += lanes) {
        words(key, index, [place](std::size_t) { return place; }, [](std::size_t) { return 1u; }, first, count, c);
        for (int l = 0; l < filled(first, count); ++l) next[first + l] = joined(c.word[0][l], c.word[1][l]);
    }
}

FEDTIDE_INLINE void units_here(Column key, Column device, Column draw, std::size_t count, double* one, double* other) {
    const auto third = [draw](std::size_t i) { return low(draw.at(i)); };
    const auto fourth = [draw](std::size_t i) { return high(draw.at(i)) << 1; };
    Words c;
    for (std::size_t first = 0; first < count; first += lanes) {
        words(key, device, third, fourth, first, count, c);
        const int here = filled(first, count);
        for (int l = 0; l < here; ++l) one[first + l] = unit(c.word[0][l], c.word[1][l]);
        if (other != nullptr)
            for (int l = 0; l < here; ++l) other[first + l] = unit(c.word[2][l], c.word[3][l]);
    }
}

FEDTIDE_INLINE void labels_here(std::uint64_t key, const std::uint64_t* device, const std::int64_t* size, std::size_t count,
                                const Urn& urn, std::int64_t* counts) {
    const double total = urn.ends[urn.num_labels - 1];
    const bool independent = std::isinf(urn.mass);
    const std::int64_t longest = count > 0 ? *std::max_element(size, size + count) : 0;
    std::vector<std::uint16_t> drawn(static_cast<std::size_t>(independent ? 1 : longest) * lanes);  // [longest lanes]
    for (std::size_t first = 0; first < count; first += lanes) {
        const int here = filled(first, count);
        const std::int64_t most = *std::max_element(size + first, size + first + here);
        Words c = {};
        for (std::int64_t at = 0; at < most; ++at) {
            const auto pair = static_cast<std::uint64_t>(at / 2);  // an address has two numbers
            const int w = at % 2 == 0 ? 0 : 2;
            if (w == 0)
                words({&key, 0}, {device, 1}, [pair](std::size_t) { return low(pair); },
                      [pair](std::size_t) { return high(pair) << 1; }, first, count, c);
            const auto before = static_cast<double>(at);
            double place[lanes], fresh[lanes];
            std::int64_t label[lanes];
            for (int l = 0; l < lanes; ++l) {
                const double value = unit(c.word[w][l], c.word[w + 1][l]);
                place[l] = independent ? 0 : value * (before + urn.mass);
                fresh[l] = independent ? value * total : (place[l] - before) / urn.mass * total;
            }
            labels_at(urn, fresh, label);
            if (!independent)
                for (int l = 0; l < lanes; ++l) {
                    const bool again = place[l] < before;  // as one that was drawn before
                    const std::size_t which = again ? static_cast<std::size_t>(place[l]) : 0;
                    const std::int64_t old = drawn[which * lanes + l];
                    drawn[static_cast<std::size_t>(at) * lanes + l] = static_cast<std::uint16_t>(again ? old : label[l]);
                    label[l] = again ? old : label[l];
                }
            for (int l = 0; l < here; ++l)
                if (at < size[first + l]) ++counts[(first + l) * urn.num_labels + label[l]];
        }
    }
}

#if defined(FEDTIDE_X86)
bool is_wide() {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}
FEDTIDE_WIDE void lead_wide(Column key, Column index, std::uint32_t place, std::size_t count, std::uint64_t* next) {
    lead_here(key, index, place, count, next);
}
FEDTIDE_WIDE void units_wide(Column key, Column device, Column draw, std::size_t count, double* one, double* other) {
    units_here(key, device, draw, count, one, other);
}
FEDTIDE_WIDE void labels_wide(std::uint64_t key, const std::uint64_t* device, const std::int64_t* size, std::size_t count,
                              const Urn& urn, std::int64_t* counts) {
    labels_here(key, device, size, count, urn, counts);
}
#define FEDTIDE_CHOOSE(name, ...) is_wide() ? name##_wide(__VA_ARGS__) : name##_here(__VA_ARGS__)
#else
#define FEDTIDE_CHOOSE(name, ...) name##_here(__VA_ARGS__)
#endif

}  // namespace

void lead(Column key, Column index, std::uint32_t place, std::size_t count, std::uint64_t* next) {
    FEDTIDE_CHOOSE(lead, key, index, place, count, next);
}

void units(Column key, Column device, Column draw, std::size_t count, double* one, double* other) {
    FEDTIDE_CHOOSE(units, key, device, draw, count, one, other);
}

void draw_labels(std::uint64_t key, const std::uint64_t* device, const std::int64_t* size, std::size_t count, const Urn& urn,
                 std::int64_t* counts) {
    FEDTIDE_CHOOSE(labels, key, device, size, count, urn, counts);
}

}  // namespace fedtide
