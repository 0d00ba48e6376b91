// Rows in blocks of eight, column by column, to be compared side by side.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "schedule.h"

namespace fedtide::schedule {

// No number that is met is larger than this: ||t + v||^2, t a sum of up to size + 1 rows, and its terms.
inline double largest(const Rows& rows, std::int64_t size) {
    double widest = 0;
    for (std::int64_t i = 0; i < rows.count * rows.width; ++i)
        widest = std::max(widest, std::abs(static_cast<double>(rows.value[i])));
    const double sum = (static_cast<double>(size) + 2) * widest;
    return 4 * static_cast<double>(rows.width) * sum * sum;
}

constexpr double most_in_double = 0x1p52;  // up to here double is exact, and faster than int64

template <class T>
class Blocks {
    // Two numbers side by side: what compilers make of plain loops here depends on too much else.
    typedef T Vector __attribute__((vector_size(16), aligned(8), may_alias));
    static constexpr std::int64_t lanes = 8;
    static constexpr int vectors = lanes / 2;

   public:
    static constexpr T never = static_cast<T>(std::int64_t{1} << 62);  // above every value

    Blocks(std::int64_t count, std::int64_t width)
        : width_(width),
          padded_((count + lanes - 1) / lanes * lanes),
          columns_(static_cast<std::size_t>(padded_ * width), T{0}),
          square_(static_cast<std::size_t>(padded_), never),
          value_(static_cast<std::size_t>(padded_), never) {}

    void put(std::int64_t place, const T* row) {
        T* block = columns_.data() + place / lanes * lanes * width_ + place % lanes;
        T total = 0;
        for (std::int64_t j = 0; j < width_; ++j) {
            block[j * lanes] = row[j];
            total += row[j] * row[j];
        }
        square_[static_cast<std::size_t>(place)] = total;
    }

    void get(std::int64_t place, T* row) const {
        const T* block = columns_.data() + place / lanes * lanes * width_ + place % lanes;
        for (std::int64_t j = 0; j < width_; ++j) row[j] = block[j * lanes];
    }

    // value(place) = ||v||^2 + 2 left . v of every place from the block of `first` to that of `last` - 1; returns the least,
    // whichever place of these blocks has it.
    T compare(const T* left, std::int64_t first, std::int64_t last) {
        Vector least[vectors], product[vectors];
        for (Vector& each : least) each = Vector{} + never;
        for (std::int64_t place = first / lanes * lanes; place < last; place += lanes) {
            const auto* block = reinterpret_cast<const Vector*>(columns_.data() + place * width_);
            for (Vector& each : product) each = Vector{};
            for (std::int64_t j = 0; j < width_; ++j)
                for (int i = 0; i < vectors; ++i) product[i] += left[j] * block[j * vectors + i];
            auto* value = reinterpret_cast<Vector*>(value_.data() + place);
            const auto* square = reinterpret_cast<const Vector*>(square_.data() + place);
            for (int i = 0; i < vectors; ++i) {
                const Vector found = square[i] + (product[i] + product[i]);
                value[i] = found;
                least[i] = found < least[i] ? found : least[i];
            }
        }
        T all = never;
        for (const Vector& each : least) all = std::min({all, each[0], each[1]});
        return all;
    }

    T value(std::int64_t place) const { return value_[static_cast<std::size_t>(place)]; }

   private:
    const std::int64_t width_, padded_;
    std::vector<T> columns_, square_, value_;
};

template <class T>
T norm(const std::vector<T>& vector) {
    T total = 0;
    for (const T each : vector) total += each * each;
    return total;
}

}  // namespace fedtide::schedule
