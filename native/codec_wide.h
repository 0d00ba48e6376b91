// Whole numbers wider than a machine word: 256 bits of fixed size, and numbers of any length.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace fedtide::codec {

using Word = std::uint64_t;
__extension__ using Double = unsigned __int128;

// The quotient of (high, low) by `by`, high < by: else it would not fit a word, and the processor would raise SIGFPE.
inline Word divided(Word high, Word low, Word by, Word* rest) {
#if defined(FEDTIDE_SANITIZE)
    if (high >= by) __builtin_trap();
#endif
#if defined(__x86_64__)
    Word quotient;
    __asm__("divq %4" : "=a"(quotient), "=d"(*rest) : "a"(low), "d"(high), "r"(by) : "cc");
    return quotient;
#else
    const Double whole = static_cast<Double>(high) << 64 | low;
    *rest = static_cast<Word>(whole % by);
    return static_cast<Word>(whole / by);
#endif
}

inline int bits_of(Word word) { return word ? 64 - __builtin_clzll(word) : 0; }

// 256 bits, the lowest word first. Nothing here is larger: binomials below 2^192 times a word, products of two of 97
// bits.
struct Wide {
    std::array<Word, 4> word{};

    Wide() = default;
    explicit Wide(Word low) { word[0] = low; }

    int bits() const {
        for (int i = 3; i >= 0; --i)
            if (word[i]) return 64 * i + bits_of(word[i]);
        return 0;
    }
    bool operator<(const Wide& other) const {
        for (int i = 3; i >= 0; --i)
            if (word[i] != other.word[i]) return word[i] < other.word[i];
        return false;
    }
    void add(const Wide& other) {
        Word carry = 0;
        for (int i = 0; i < 4; ++i) {
            const Double sum = static_cast<Double>(word[i]) + other.word[i] + carry;
            word[i] = static_cast<Word>(sum);
            carry = static_cast<Word>(sum >> 64);
        }
    }
    void multiply(Word by) {
        Word carry = 0;
        for (int i = 0; i < 4; ++i) {
            const Double product = static_cast<Double>(word[i]) * by + carry;
            word[i] = static_cast<Word>(product);
            carry = static_cast<Word>(product >> 64);
        }
    }
    // Divides and returns what is left over.
    Word divide(Word by) {
        Word rest = 0;
        for (int i = 3; i >= 0; --i)
            if (word[i] || rest) word[i] = divided(rest, word[i], by, &rest);
        return rest;
    }
    void shift_right(int by) {
        const int words = by / 64, bits = by % 64;
        for (int i = 0; i < 4; ++i) {
            const Word low = i + words < 4 ? word[i + words] : 0, high = i + words + 1 < 4 ? word[i + words + 1] : 0;
            word[i] = bits ? low >> bits | high << (64 - bits) : low;
        }
    }
};

// The product, which has to be below 2^256.
inline Wide product(const Wide& a, const Wide& b) {
    Wide made;
    for (int j = 0; j < 4; ++j) {
        Word carry = 0;
        for (int i = 0; b.word[j] && i + j < 4; ++i) {
            const Double sum = static_cast<Double>(a.word[i]) * b.word[j] + made.word[i + j] + carry;
            made.word[i + j] = static_cast<Word>(sum);
            carry = static_cast<Word>(sum >> 64);
        }
    }
    return made;
}

using Number = std::vector<Word>;  // the lowest word first, no zero word at the end

inline void trim(Number& a) {
    while (!a.empty() && a.back() == 0) a.pop_back();
}

inline std::int64_t bits_of(const Number& a) {
    return a.empty() ? 0 : 64 * static_cast<std::int64_t>(a.size() - 1) + bits_of(a.back());
}

// a += b * 2^shift, b [count].
inline void add_shifted(Number& a, const Word* b, std::size_t count, std::int64_t shift) {
    while (count && b[count - 1] == 0) --count;
    if (!count) return;
    const auto words = static_cast<std::size_t>(shift / 64);
    const int bits = static_cast<int>(shift % 64);
    a.resize(std::max(a.size(), words + count + 1) + 1);
    Word carry = 0, before = 0;
    for (std::size_t i = words; i < a.size(); ++i) {
        const std::size_t at = i - words;
        if (at > count && !carry) break;
        const Word now = at < count ? b[at] : 0;
        const Word part = bits ? now << bits | before >> (64 - bits) : now;
        before = now;
        const Double sum = static_cast<Double>(a[i]) + part + carry;
        a[i] = static_cast<Word>(sum);
        carry = static_cast<Word>(sum >> 64);
    }
    trim(a);
}

// a -= b * 2^shift, which is not larger than a.
inline void subtract_shifted(Number& a, const Wide& b, std::int64_t shift) {
    const auto words = static_cast<std::size_t>(shift / 64);
    const int bits = static_cast<int>(shift % 64);
    Word borrow = 0, before = 0;
    for (std::size_t i = words; i < a.size(); ++i) {
        const std::size_t at = i - words;
        if (at > 4 && !borrow) break;
        const Word now = at < 4 ? b.word[at] : 0;
        const Word part = bits ? now << bits | before >> (64 - bits) : now;
        before = now;
        const Double taken = static_cast<Double>(part) + borrow;
        borrow = a[i] < taken;
        a[i] -= static_cast<Word>(taken);
    }
    trim(a);
}

inline Number shifted_right(const Number& a, std::int64_t by) {
    const auto words = static_cast<std::size_t>(by / 64);
    const int bits = static_cast<int>(by % 64);
    if (words >= a.size()) return {};
    Number made(a.size() - words);
    for (std::size_t i = 0; i < made.size(); ++i) {
        const Word high = i + words + 1 < a.size() ? a[i + words + 1] : 0;
        made[i] = bits ? a[i + words] >> bits | high << (64 - bits) : a[i + words];
    }
    trim(made);
    return made;
}

inline Number lowest_bits(const Number& a, std::int64_t count) {
    Number made(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(a.size(), (count + 63) / 64)));
    if (count % 64 && static_cast<std::int64_t>(made.size()) == count / 64 + 1)
        made.back() &= (Word{1} << count % 64) - 1;
    trim(made);
    return made;
}

inline Number multiplied(const Number& a, const Wide& b) {
    Number made(a.size() + 4);
    for (std::size_t j = 0; j < 4; ++j) {
        if (!b.word[j]) continue;
        Word carry = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            const Double sum = static_cast<Double>(a[i]) * b.word[j] + made[i + j] + carry;
            made[i + j] = static_cast<Word>(sum);
            carry = static_cast<Word>(sum >> 64);
        }
        for (std::size_t i = a.size() + j; carry; ++i) {
            const Double sum = static_cast<Double>(made[i]) + carry;
            made[i] = static_cast<Word>(sum);
            carry = static_cast<Word>(sum >> 64);
        }
    }
    trim(made);
    return made;
}

// Leaves a mod b in a and returns the quotient: Knuth's algorithm D.
inline Number divide(Number& a, const Wide& b) {
    std::size_t size = 4;
    while (size > 1 && b.word[size - 1] == 0) --size;
    if (a.size() < size) return {};
    if (size == 1) {
        Word rest = 0;
        Number quotient(a.size());
        for (std::size_t i = a.size(); i-- > 0;) quotient[i] = divided(rest, a[i], b.word[0], &rest);
        a.assign(1, rest);
        trim(a);
        trim(quotient);
        return quotient;
    }
    const int up = __builtin_clzll(b.word[size - 1]);  // so that the divisor's highest bit is set
    std::array<Word, 4> by{};
    for (std::size_t i = 0; i < size; ++i)
        by[i] = up ? b.word[i] << up | (i ? b.word[i - 1] >> (64 - up) : 0) : b.word[i];
    Word above = up ? a.back() >> (64 - up) : 0;
    if (up)
        for (std::size_t i = a.size(); i-- > 0;) a[i] = a[i] << up | (i ? a[i - 1] >> (64 - up) : 0);
    a.push_back(above);
    const std::size_t count = a.size() - size;
    Number quotient(count);
    for (std::size_t at = count; at-- > 0;) {
        const Word high = a[at + size], next = a[at + size - 1];
        Word guess, rest;
        bool over = false;  // the rest is beyond a word: the guess is right or one too large
        if (high >= by[size - 1]) {
            guess = ~Word{0};
            rest = next + by[size - 1];
            over = rest < next;
        } else {
            guess = divided(high, next, by[size - 1], &rest);
        }
        while (!over &&
               static_cast<Double>(guess) * by[size - 2] > (static_cast<Double>(rest) << 64 | a[at + size - 2])) {
            --guess;
            rest += by[size - 1];
            over = rest < by[size - 1];
        }
        Word borrow = 0, carry = 0;
        for (std::size_t i = 0; i < size; ++i) {
            const Double taken = static_cast<Double>(guess) * by[i] + carry;
            carry = static_cast<Word>(taken >> 64);
            const Double part = static_cast<Double>(static_cast<Word>(taken)) + borrow;
            borrow = a[at + i] < part;
            a[at + i] -= static_cast<Word>(part);
        }
        const Double part = static_cast<Double>(carry) + borrow;
        borrow = a[at + size] < part;
        a[at + size] -= static_cast<Word>(part);
        if (borrow) {  // one too large: put it back
            --guess;
            carry = 0;
            for (std::size_t i = 0; i < size; ++i) {
                const Double sum = static_cast<Double>(a[at + i]) + by[i] + carry;
                a[at + i] = static_cast<Word>(sum);
                carry = static_cast<Word>(sum >> 64);
            }
            a[at + size] += carry;
        }
        quotient[at] = guess;
    }
    trim(a);
    if (up) a = shifted_right(a, up);
    trim(quotient);
    return quotient;
}

}  // namespace fedtide::codec
