// Enumerative coding of index sets; the mathematics is told in fedtide/codec/subsets.py, whose numbers these are.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "codec_wide.h"

namespace fedtide::codec {

constexpr int block = 64;  // positions

// Numbers index sets. What it has worked out (binomials, splits) it keeps, so that it belongs to one thread at a time.
class Subsets {
  public:
    // The bits of one set of num_kept out of num_positions: ceil(log2 C(d, r)).
    std::int64_t index_bits(std::int64_t num_positions, std::int64_t num_kept);
    // The number of a set; chosen: one byte for each position [d], 0 or 1.
    Number rank(const std::uint8_t* chosen, std::int64_t num_positions);
    // Marks the positions of the set with this number; false if no set has it.
    bool unrank(Number number, std::int64_t num_kept, std::int64_t num_positions, std::uint8_t* chosen);

  private:
    struct Bound {  // m * 2^e
        Wide m;
        std::int64_t e = 0;
    };
    struct Binomial {
        Bound rounded_up;  // in about 97 bits
        Bound bound;       // exact below 2^192
    };
    struct Table {  // the splits of a small pair
        std::int64_t e = 0, least = 0;
        std::vector<Wide> by_split, starts;
        std::vector<std::int64_t> order;
    };
    struct Splits {  // goes over (j, units) from the mode outwards
        std::int64_t n1, n2, k, least, most, e, up, down, j;
        Wide units, above, below;
        bool turn_up, first;
        bool next();
    };
    struct Factorials;

    const Binomial& binomial(std::int64_t n, std::int64_t k);
    Splits splits(std::int64_t n1, std::int64_t n2, std::int64_t k);
    const Table& table(std::int64_t n1, std::int64_t n2, std::int64_t k);
    void add_start(Number& number, std::int64_t n1, std::int64_t n2, std::int64_t k, std::int64_t j);
    std::int64_t find(std::int64_t n1, std::int64_t n2, std::int64_t k, Number& number);
    const std::vector<std::vector<std::int64_t>>& tree(std::int64_t num_positions);
    void make_room();

    std::unordered_map<std::uint64_t, Binomial> binomials_;
    std::unordered_map<std::uint64_t, Table> tables_;
    std::shared_ptr<const Factorials> factorials_;
    std::vector<std::vector<std::int64_t>> tree_;
    std::int64_t tree_positions_ = -1;
};

}  // namespace fedtide::codec
