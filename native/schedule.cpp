#include "schedule.h"

#include <limits>
#include <memory>

#include "schedule_blocks.h"

namespace fedtide::schedule {

namespace {

constexpr int disturbed = 6;  // random swaps, after which the descent begins again
constexpr double most = 0x1p62;

// T: double where that holds every number exactly (it is faster), else int64. The results are the same.
template <class T>
class Descent {
   public:
    Descent(const Rows& rows, std::int64_t size)
        : rows_(rows),
          size_(size),
          rest_(rows.count - size),
          value_(rows.value, rows.value + rows.count * rows.width),
          inside_(static_cast<std::size_t>(size)),
          outside_(static_cast<std::size_t>(rest_)),
          blocks_(rest_, rows.width),
          sum_(static_cast<std::size_t>(rows.width)),
          left_(static_cast<std::size_t>(rows.width)) {}

    void begin(const bool* member) {
        std::fill(sum_.begin(), sum_.end(), T{0});
        std::int64_t in = 0, out = 0;
        for (std::int64_t k = 0; k < rows_.count; ++k) {
            if (member[k]) {
                inside_[static_cast<std::size_t>(in++)] = k;
                for (std::int64_t j = 0; j < rows_.width; ++j) sum_[static_cast<std::size_t>(j)] += row(k)[j];
            } else {
                put(out++, k);
            }
        }
    }

    // One swap, the best; of equals the one that takes out the earliest row, then the one that takes in the earliest.
    bool improve() {
        const T now = norm(sum_);
        T best = 0;
        std::int64_t out = 0, into = 0;
        for (std::int64_t a = 0; a < size_; ++a) {
            const std::int64_t leaving = inside_[static_cast<std::size_t>(a)];
            for (std::int64_t j = 0; j < rows_.width; ++j)
                left_[static_cast<std::size_t>(j)] = sum_[static_cast<std::size_t>(j)] - row(leaving)[j];
            const T least = blocks_.compare(left_.data(), 0, rest_);
            const T change = norm(left_) + least - now;
            if (change > best || change >= 0) continue;
            if (change == best && leaving > inside_[static_cast<std::size_t>(out)]) continue;
            best = change;
            out = a;
            into = first(least);
        }
        if (!(best < 0)) return false;
        swap(out, into);
        return true;
    }

    // A random swap, whatever it does.
    void disturb(std::uint64_t draw) {
        const auto out = static_cast<std::size_t>(draw % static_cast<std::uint64_t>(size_));
        const auto into = static_cast<std::int64_t>((draw >> 32) % static_cast<std::uint64_t>(rest_));
        swap(static_cast<std::int64_t>(out), into);
    }

    std::int64_t reached() const { return static_cast<std::int64_t>(norm(sum_)); }
    const std::vector<std::int64_t>& inside() const { return inside_; }

   private:
    void swap(std::int64_t out, std::int64_t into) {
        const std::int64_t leaving = inside_[static_cast<std::size_t>(out)], entering = outside_[static_cast<std::size_t>(into)];
        for (std::int64_t j = 0; j < rows_.width; ++j) sum_[static_cast<std::size_t>(j)] += row(entering)[j] - row(leaving)[j];
        inside_[static_cast<std::size_t>(out)] = entering;
        put(into, leaving);
    }

    const T* row(std::int64_t number) const { return value_.data() + number * rows_.width; }

    void put(std::int64_t place, std::int64_t number) {
        outside_[static_cast<std::size_t>(place)] = number;
        blocks_.put(place, row(number));
    }

    std::int64_t first(T least) const {
        std::int64_t found = -1;
        for (std::int64_t place = 0; place < rest_; ++place)
            if (blocks_.value(place) == least &&
                (found < 0 || outside_[static_cast<std::size_t>(place)] < outside_[static_cast<std::size_t>(found)]))
                found = place;
        return found;
    }

    const Rows rows_;
    const std::int64_t size_, rest_;
    const std::vector<T> value_;                  // the rows
    std::vector<std::int64_t> inside_, outside_;  // in no order: equals are told by their number
    Blocks<T> blocks_;                            // what is outside
    std::vector<T> sum_, left_;
};

// Adds one row at a time, the one that leaves the least; of equals the first.
template <class T>
std::unique_ptr<bool[]> greedy(const Rows& rows, std::int64_t size, const Look& look) {
    auto member = std::make_unique<bool[]>(static_cast<std::size_t>(rows.count));
    std::vector<T> sum(static_cast<std::size_t>(rows.width), T{0});
    for (std::int64_t taken = 0; taken < size; ++taken) {
        look();
        std::int64_t best = -1;
        T least = 0;
        for (std::int64_t k = 0; k < rows.count; ++k) {
            if (member[static_cast<std::size_t>(k)]) continue;
            T value = 0;
            for (std::int64_t j = 0; j < rows.width; ++j) {
                const T each = sum[static_cast<std::size_t>(j)] + static_cast<T>(rows.value[k * rows.width + j]);
                value += each * each;
            }
            if (best < 0 || value < least) {
                best = k;
                least = value;
            }
        }
        member[static_cast<std::size_t>(best)] = true;
        for (std::int64_t j = 0; j < rows.width; ++j)
            sum[static_cast<std::size_t>(j)] += static_cast<T>(rows.value[best * rows.width + j]);
    }
    return member;
}

template <class T>
Found descend_in(const Rows& rows, std::int64_t size, const bool* starts, std::int64_t num_starts, std::int64_t enough,
                 const Look& look) {
    Descent<T> descent(rows, size);
    Found best{{}, std::numeric_limits<std::int64_t>::max()};
    const std::unique_ptr<bool[]> first = greedy<T>(rows, size, look);
    for (std::int64_t start = 0; start <= num_starts; ++start) {
        descent.begin(start == 0 ? first.get() : starts + (start - 1) * rows.count);
        do look();
        while (descent.improve());
        if (descent.reached() < best.reached) best = {descent.inside(), descent.reached()};
        if (best.reached <= enough) break;
    }
    std::sort(best.picked.begin(), best.picked.end());
    return best;
}

std::uint64_t mixed(std::uint64_t& state) {  // SplitMix64
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

template <class T>
Found disturb_in(const Rows& rows, std::int64_t size, const bool* start, std::int64_t enough, std::uint64_t seed,
                 std::int64_t steps, const Look& look) {
    Descent<T> descent(rows, size);
    const auto member = std::make_unique<bool[]>(static_cast<std::size_t>(rows.count));
    std::copy(start, start + rows.count, member.get());
    descent.begin(member.get());
    Found best{descent.inside(), descent.reached()};
    const std::int64_t price = size * ((rows.count - size + 31) / 32);  // of looking at all swaps
    while (steps > 0 && best.reached > enough) {
        descent.begin(member.get());
        for (int i = 0; i < disturbed; ++i) descent.disturb(mixed(seed));
        do {
            look();
            steps -= price;
        } while (descent.improve());
        if (descent.reached() >= best.reached) continue;
        best = {descent.inside(), descent.reached()};
        std::fill(member.get(), member.get() + rows.count, false);
        for (const std::int64_t row : best.picked) member[static_cast<std::size_t>(row)] = true;
    }
    std::sort(best.picked.begin(), best.picked.end());
    return best;
}

}  // namespace

bool fits(const Rows& rows, std::int64_t size) { return largest(rows, size) < most; }

Found descend(const Rows& rows, std::int64_t size, const bool* starts, std::int64_t num_starts, std::int64_t enough,
              const Look& look) {
    return largest(rows, size) < most_in_double
               ? descend_in<double>(rows, size, starts, num_starts, enough, look)
               : descend_in<std::int64_t>(rows, size, starts, num_starts, enough, look);
}

Found disturb(const Rows& rows, std::int64_t size, const bool* start, std::int64_t enough, std::uint64_t seed,
              std::int64_t steps, const Look& look) {
    return largest(rows, size) < most_in_double ? disturb_in<double>(rows, size, start, enough, seed, steps, look)
                                                : disturb_in<std::int64_t>(rows, size, start, enough, seed, steps, look);
}

}  // namespace fedtide::schedule
