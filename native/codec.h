// The codecs, one update at a time: what is between the header of a packet and its end. Header, checksum and messages
// are Python's (fedtide/codec). tests/twins has the same in Python, to the bit.
#pragma once

#include <cstdint>
#include <string>

#include "codec_bits.h"
#include "codec_subsets.h"

namespace fedtide::codec {

struct Payload {
    const std::uint8_t* bytes;
    std::size_t size;
};

// What is wrong with a payload; fedtide/codec/base.py has the words.
enum class Refusal : int { none = 0, norm, set, levels, length, magnitude, goes_on, code };

// Of random sparsification and quantisation: r of d elements, levels in -nu..nu of element_bits each.
struct Sparse {
    std::int64_t num_parameters, num_kept;
    int num_levels, element_bits;
};

std::string encode_sparse(const Sparse& shape, const float* update, BitGenerator& draws, Subsets& subsets);
Refusal decode_sparse(const Sparse& shape, Payload payload, Subsets& subsets, float* update);

// Of dead-zone quantisation. The length in bits of the code of d zeros; what is sent for an update within whole bits,
// if anything; and the update of a payload.
double dead_zone_least_bits(std::int64_t num_parameters);
std::string encode_dead_zone(const float* update, std::int64_t num_parameters, std::int64_t whole_bits,
                             BitGenerator& draws, std::int64_t* bits);
Refusal decode_dead_zone(Payload payload, std::int64_t payload_bits, std::int64_t num_parameters, float* update);

// Of random rounding to levels of the norm, at most num_levels of them; n: how many levels of a payload are not zero.
std::string encode_qsgd(const float* update, std::int64_t num_parameters, double budget_bits, int num_levels,
                        BitGenerator& draws, Subsets& subsets, std::int64_t* bits);
Refusal decode_qsgd(Payload payload, std::int64_t payload_bits, std::int64_t num_parameters, std::int64_t n,
                    Subsets& subsets, float* update);

}  // namespace fedtide::codec
