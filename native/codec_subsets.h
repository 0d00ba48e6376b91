// Enumerative coding of index sets: every r-subset of 0..d-1 gets a number below C(d, r), so no code is shorter.
//
// The positions are cut into blocks of 64, each numbered by itself (combinatorial number system), and the blocks are joined in
// pairs up a binary tree. A pair of n1 and n2 positions that together hold k is numbered by how the k split into j and k - j,
// then by the two numbers: number = sum_{i before j} C(n1, i) C(n2, k-i) + number1 * C(n2, k-j) + number2. The splits are
// ordered from the likeliest outwards, so the sum has few terms: about the standard deviation of j.
//
// Up to 2^192 the binomials are exact. Larger ones are rounded up to 96 significant bits, with a margin delta = 2^(2 level - 72)
// that grows fast enough up the tree to make room for both children and every rounding: (1 + delta_child)^2 < 1 + delta. The
// bound at the root exceeds C(d, r) by a factor below 1 + 2^-40 (d up to 4 million), and the time is linear in the length of
// the number. Whole numbers only: the code is the same on every machine. tests/twins/subsets.py is the same in Python.
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
