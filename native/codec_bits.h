// What the codecs have in common: bits in a row, sums as NumPy adds them up, draws from NumPy's generators.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "codec_wide.h"

namespace fedtide::codec {

// Writes numbers of given widths one after the other, the most significant bit first; zero bits up to a whole byte.
class BitWriter {
  public:
    explicit BitWriter(std::string& bytes) : bytes_(bytes) {}

    void put(Word value, int width) {  // width <= 64; only the lowest bits of the value count
        if (width > 32) {
            put(value >> 32, width - 32);
            width = 32;
        }
        held_ = held_ << width | (value & ((Word{1} << width) - 1));
        count_ += width;
        if (count_ >= 32) {
            count_ -= 32;
            const Word whole = held_ >> count_;
            const char four[] = {static_cast<char>(whole >> 24), static_cast<char>(whole >> 16),
                                 static_cast<char>(whole >> 8), static_cast<char>(whole)};
            bytes_.append(four, 4);
        }
    }
    void put(const Number& number, std::int64_t width) {  // the number has at most so many bits
        const auto words = static_cast<std::size_t>((width + 63) / 64);
        for (std::size_t i = words; i-- > 0;) {
            const int bits = i + 1 == words && width % 64 ? static_cast<int>(width % 64) : 64;
            put(i < number.size() ? number[i] : 0, bits);
        }
    }
    void end() {
        for (; count_ > 0; count_ -= 8)
            bytes_.push_back(static_cast<char>(count_ >= 8 ? held_ >> (count_ - 8) : held_ << (8 - count_)));
        count_ = 0;
    }

  private:
    std::string& bytes_;
    Word held_ = 0;
    int count_ = 0;  // bits that are held, below 32
};

// Reads what a BitWriter wrote. Beyond the end are zeros: callers have compared the lengths before.
class BitReader {
  public:
    BitReader(const std::uint8_t* bytes, std::size_t size) : bytes_(bytes), size_(size) {}

    Word get(int width) {  // width <= 64
        if (width > 32) {
            const Word high = get(width - 32);
            return high << 32 | get(32);
        }
        while (count_ < width) {
            held_ = held_ << 8 | (at_ < size_ ? bytes_[at_] : 0);
            ++at_;
            count_ += 8;
        }
        count_ -= width;
        return held_ >> count_ & ((Word{1} << width) - 1);
    }
    Number number(std::int64_t width) {
        Number made(static_cast<std::size_t>((width + 63) / 64));
        for (std::size_t i = made.size(); i-- > 0;)
            made[i] = get(i + 1 == made.size() && width % 64 ? static_cast<int>(width % 64) : 64);
        trim(made);
        return made;
    }

  private:
    const std::uint8_t* bytes_;
    std::size_t size_, at_ = 0;
    Word held_ = 0;
    int count_ = 0;
};

// sum_i at(i) for i in [first, first + count), in the order in which NumPy adds the elements of an array up (pairwise:
// halves down to 128, there eight sums side by side), so that the bits are NumPy's.
template <class Float, class At>
Float pairwise_sum(const At& at, std::int64_t first, std::int64_t count) {
    if (count < 8) {
        Float sum = 0;
        for (std::int64_t i = 0; i < count; ++i) sum += at(first + i);
        return sum;
    }
    if (count <= 128) {
        Float r[8];
        for (int i = 0; i < 8; ++i) r[i] = at(first + i);
        std::int64_t i = 8;
        for (; i < count - count % 8; i += 8)
            for (int j = 0; j < 8; ++j) r[j] += at(first + i + j);
        Float sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
        for (; i < count; ++i) sum += at(first + i);
        return sum;
    }
    std::int64_t half = count / 2;
    half -= half % 8;
    return pairwise_sum<Float>(at, first, half) + pairwise_sum<Float>(at, first + half, count - half);
}

// NumPy's bit generators as they show themselves to C (numpy/random/bitgen.h).
struct BitGenerator {
    void* state;
    std::uint64_t (*next_uint64)(void*);
    std::uint32_t (*next_uint32)(void*);
    double (*next_double)(void*);
    std::uint64_t (*next_raw)(void*);

    double random() { return next_double(state); }

    // A number in 0..most, as Generator.shuffle draws it: as many bits as it has, again until it is not beyond.
    std::uint32_t up_to(std::uint32_t most) {
        const std::uint32_t mask = most ? UINT32_MAX >> __builtin_clz(most) : 0;
        std::uint32_t drawn = next_uint32(state) & mask;
        while (drawn > most) drawn = next_uint32(state) & mask;
        return drawn;
    }
};

}  // namespace fedtide::codec
