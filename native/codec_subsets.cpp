#include "codec_subsets.h"

#include <mutex>

namespace fedtide::codec {

namespace {

constexpr int exact_bits = 192;  // binomials below 2^192 are exact
constexpr int digits = 96;       // significant bits of the larger ones
constexpr std::int64_t tables_up_to = 256;
constexpr std::size_t most_binomials = std::size_t{1} << 16, most_tables = std::size_t{1} << 12;

struct Pascal {  // C(n, i)
    std::uint64_t of[block + 1][block + 1];
    Pascal() {
        for (int n = 0; n <= block; ++n)
            for (int i = 0; i <= block; ++i) of[n][i] = i == 0 ? 1 : n == 0 ? 0 : of[n - 1][i - 1] + of[n - 1][i];
    }
};
const Pascal pascal;

// C(n, k), which is below 2^192.
Wide exact(std::int64_t n, std::int64_t k) {
    k = std::min(k, n - k);
    Wide made(1);
    for (std::int64_t i = 1; i <= k; ++i) {
        made.multiply(static_cast<Word>(n - k + i));
        made.divide(static_cast<Word>(i));
    }
    return made;
}

// Rounded up.
void scale(Wide& units, Word by, Word over) {
    units.multiply(by);
    if (units.divide(over)) units.add(Wide(1));
}

}  // namespace

// n! = mantissa * 2^exponent, mantissas of 128 bits rounded down. Never changed once it is made, and shared by all.
struct Subsets::Factorials {
    std::vector<Word> high{Word{1} << 63}, low{0};
    std::vector<std::int64_t> exponent{-127};

    explicit Factorials(std::int64_t most) {
        Wide mantissa;
        mantissa.word[1] = high[0];
        for (std::int64_t n = 1; n <= most; ++n) {
            mantissa.multiply(static_cast<Word>(n));
            const int shift = mantissa.bits() - 128;
            mantissa.shift_right(shift);
            high.push_back(mantissa.word[1]);
            low.push_back(mantissa.word[0]);
            exponent.push_back(exponent.back() + shift);
        }
    }

    Wide mantissa(std::int64_t n) const {
        Wide made;
        made.word[0] = low[static_cast<std::size_t>(n)];
        made.word[1] = high[static_cast<std::size_t>(n)];
        return made;
    }

    static std::shared_ptr<const Factorials> up_to(std::int64_t most) {
        static std::mutex mutex;
        static std::shared_ptr<const Factorials> made;
        const std::lock_guard<std::mutex> lock(mutex);
        if (!made || static_cast<std::int64_t>(made->high.size()) <= most)
            made = std::make_shared<const Factorials>(most);
        return made;
    }
};

const Subsets::Binomial& Subsets::binomial(std::int64_t n, std::int64_t k) {
    const std::uint64_t key = static_cast<std::uint64_t>(n) << 32 | static_cast<std::uint64_t>(k);
    const auto known = binomials_.find(key);
    if (known != binomials_.end()) return known->second;
    if (!factorials_ || static_cast<std::int64_t>(factorials_->high.size()) <= n) factorials_ = Factorials::up_to(n);
    const Factorials& f = *factorials_;
    const Wide top = f.mantissa(n);
    Number whole{0, 0, 0, 0, top.word[0], top.word[1]};
    const Number found = divide(whole, product(f.mantissa(k), f.mantissa(n - k)));
    Wide quotient;  // of at most 130 bits
    std::copy(found.begin(), found.end(), quotient.word.begin());
    std::int64_t level = bits_of(static_cast<Word>((n + block - 1) / block - 1));
    if (n <= block) level = n == 0 ? 1 : 0;  // as whole numbers have it: (-1).bit_length() is 1
    Wide margin = quotient;
    margin.shift_right(static_cast<int>(72 - 2 * level));
    quotient.add(margin);
    const int shift = quotient.bits() - digits;
    Binomial made;
    made.rounded_up.m = quotient;
    made.rounded_up.m.shift_right(shift);
    made.rounded_up.m.add(Wide(1));
    const auto at = [&](std::int64_t i) { return f.exponent[static_cast<std::size_t>(i)]; };
    made.rounded_up.e = at(n) - at(k) - at(n - k) - 256 + shift;
    made.bound = made.rounded_up;
    if (made.rounded_up.m.bits() + made.rounded_up.e <= exact_bits) made.bound = {exact(n, k), 0};
    return binomials_.emplace(key, made).first->second;
}

std::int64_t Subsets::index_bits(std::int64_t num_positions, std::int64_t num_kept) {
    make_room();
    const Bound& bound = binomial(num_positions, num_kept).bound;
    Wide less;  // m - 1
    less.word.fill(~Word{0});
    less.add(bound.m);
    return less.bits() + bound.e;
}

bool Subsets::Splits::next() {
    if (first) {
        first = false;
        return true;
    }
    while (up < most || down > least) {
        const bool go_up = turn_up;
        turn_up = !turn_up;
        if (go_up && up < most) {  // the ratio of neighbouring terms, rounded up
            scale(above, static_cast<Word>(n1 - up) * static_cast<Word>(k - up),
                  static_cast<Word>(up + 1) * static_cast<Word>(n2 - k + up + 1));
            j = ++up;
            units = above;
            return true;
        }
        if (!go_up && down > least) {
            scale(below, static_cast<Word>(down) * static_cast<Word>(n2 - k + down),
                  static_cast<Word>(n1 - down + 1) * static_cast<Word>(k - down + 1));
            j = --down;
            units = below;
            return true;
        }
    }
    return false;
}

Subsets::Splits Subsets::splits(std::int64_t n1, std::int64_t n2, std::int64_t k) {
    Splits made{};
    made.n1 = n1, made.n2 = n2, made.k = k;
    made.least = std::max<std::int64_t>(0, k - n2);
    made.most = std::min(n1, k);
    const std::int64_t mode = std::min(std::max((k + 1) * (n1 + 1) / (n1 + n2 + 2), made.least), made.most);
    if (binomial(n1 + n2, k).bound.e == 0) {
        made.units = product(exact(n1, mode), exact(n2, k - mode));
        made.e = 0;
    } else {
        const Bound left = binomial(n1, mode).rounded_up, right = binomial(n2, k - mode).rounded_up;
        made.units = product(left.m, right.m);
        const int shift = made.units.bits() - digits;
        made.units.shift_right(shift);
        made.units.add(Wide(1));
        made.e = left.e + right.e + shift;
    }
    made.above = made.below = made.units;
    made.up = made.down = made.j = mode;
    made.turn_up = made.first = true;
    return made;
}

const Subsets::Table& Subsets::table(std::int64_t n1, std::int64_t n2, std::int64_t k) {
    const auto key = static_cast<std::uint64_t>(n1 << 32 | n2 << 16 | k);
    const auto known = tables_.find(key);
    if (known != tables_.end()) return known->second;
    Splits each = splits(n1, n2, k);
    Table made;
    made.e = each.e;
    made.least = each.least;
    made.by_split.resize(static_cast<std::size_t>(each.most - each.least + 1));
    Wide start;
    while (each.next()) {
        made.order.push_back(each.j);
        made.starts.push_back(start);
        made.by_split[static_cast<std::size_t>(each.j - each.least)] = start;
        start.add(each.units);
    }
    return tables_.emplace(key, std::move(made)).first->second;
}

// Adds the first number of the pairs that split k into j and k - j.
void Subsets::add_start(Number& number, std::int64_t n1, std::int64_t n2, std::int64_t k, std::int64_t j) {
    if (n1 <= tables_up_to) {
        const Table& known = table(n1, n2, k);
        const Wide& start = known.by_split[static_cast<std::size_t>(j - known.least)];
        return add_shifted(number, start.word.data(), 4, known.e);
    }
    Splits each = splits(n1, n2, k);
    Wide start;
    while (each.next() && each.j != j) start.add(each.units);
    add_shifted(number, start.word.data(), 4, each.e);
}

// Returns the split j that a pair's number belongs to, and takes the start of the split away from the number.
std::int64_t Subsets::find(std::int64_t n1, std::int64_t n2, std::int64_t k, Number& number) {
    const auto wanted_of =
        [&](std::int64_t e) {  // number >> e; forged numbers may be larger than all, which is enough to know
            Number high = shifted_right(number, e);
            Wide wanted;
            if (high.size() > 4)
                wanted.word.fill(~Word{0});
            else
                std::copy(high.begin(), high.end(), wanted.word.begin());
            return wanted;
        };
    if (n1 <= tables_up_to) {
        const Table& known = table(n1, n2, k);
        const auto after = std::upper_bound(known.starts.begin(), known.starts.end(), wanted_of(known.e));
        const auto at = static_cast<std::size_t>(after - known.starts.begin() - 1);
        subtract_shifted(number, known.starts[at], known.e);
        return known.order[at];
    }
    Splits each = splits(n1, n2, k);
    const Wide wanted = wanted_of(each.e);
    Wide start;
    std::int64_t j = 0;
    while (each.next()) {
        j = each.j;
        Wide end = start;
        end.add(each.units);
        if (wanted < end) break;
        start = end;
    }
    subtract_shifted(number, start, each.e);
    return j;
}

const std::vector<std::vector<std::int64_t>>& Subsets::tree(std::int64_t num_positions) {
    if (tree_positions_ == num_positions) return tree_;
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(num_positions / block), block);
    if (num_positions % block) sizes.push_back(num_positions % block);
    tree_.assign(1, sizes);
    while (sizes.size() > 1) {
        std::vector<std::int64_t> joined;
        for (std::size_t at = 0; at < sizes.size(); at += 2)
            joined.push_back(sizes[at] + (at + 1 < sizes.size() ? sizes[at + 1] : 0));
        tree_.push_back(joined);
        sizes = std::move(joined);
    }
    tree_positions_ = num_positions;
    return tree_;
}

// What is kept does not grow without end; called between numbers, when nobody refers to it.
void Subsets::make_room() {
    if (binomials_.size() > most_binomials) binomials_.clear();
    if (tables_.size() > most_tables) tables_.clear();
}

Number Subsets::rank(const std::uint8_t* chosen, std::int64_t num_positions) {
    make_room();
    const auto& levels = tree(num_positions);
    std::vector<std::int64_t> counts;
    std::vector<Number> numbers;
    for (std::int64_t first = 0; first < num_positions; first += block) {
        const int size = static_cast<int>(std::min<std::int64_t>(block, num_positions - first));
        std::int64_t count = 0;
        Word number = 0;
        for (int place = 0; place < size; ++place) {  // without a branch: which are chosen is random
            const Word taken = chosen[first + place] != 0;
            count += static_cast<std::int64_t>(taken);
            number += pascal.of[place][count] & -taken;
        }
        counts.push_back(count);
        numbers.push_back(number ? Number{number} : Number{});
    }
    for (std::size_t level = 0; level + 1 < levels.size(); ++level) {
        const auto& sizes = levels[level];
        for (std::size_t at = 0; at < sizes.size(); at += 2) {
            if (at + 1 == sizes.size()) {
                counts[at / 2] = counts[at];
                numbers[at / 2] = std::move(numbers[at]);
                continue;
            }
            const std::int64_t n1 = sizes[at], n2 = sizes[at + 1], k1 = counts[at], k2 = counts[at + 1];
            const Bound& room = binomial(n2, k2).bound;
            const Number scaled = multiplied(numbers[at], room.m);
            Number joined = std::move(numbers[at + 1]);
            add_shifted(joined, scaled.data(), scaled.size(), room.e);
            add_start(joined, n1, n2, k1 + k2, k1);
            counts[at / 2] = k1 + k2;
            numbers[at / 2] = std::move(joined);
        }
    }
    return numbers.empty() ? Number{} : numbers[0];
}

bool Subsets::unrank(Number number, std::int64_t num_kept, std::int64_t num_positions, std::uint8_t* chosen) {
    make_room();
    const auto& levels = tree(num_positions);
    std::vector<std::int64_t> counts{num_kept};
    std::vector<Number> numbers;
    numbers.push_back(std::move(number));
    for (std::size_t level = levels.size() - 1; level-- > 0;) {
        const auto& sizes = levels[level];
        std::vector<std::int64_t> below_counts;
        std::vector<Number> below;
        below_counts.reserve(sizes.size());
        below.reserve(sizes.size());
        for (std::size_t at = 0; at < sizes.size(); at += 2) {
            Number whole = std::move(numbers[at / 2]);
            const std::int64_t k = counts[at / 2];
            if (at + 1 == sizes.size()) {
                below_counts.push_back(k);
                below.push_back(std::move(whole));
                continue;
            }
            const std::int64_t n1 = sizes[at], n2 = sizes[at + 1], k1 = find(n1, n2, k, whole);
            const Bound& room = binomial(n2, k - k1).bound;
            Number low = lowest_bits(whole, room.e), rest = room.e ? shifted_right(whole, room.e) : std::move(whole);
            Number first = divide(rest, room.m);
            if (room.e == 0) low.clear();
            add_shifted(low, rest.data(), rest.size(), room.e);
            below_counts.push_back(k1);
            below_counts.push_back(k - k1);
            below.push_back(std::move(first));
            below.push_back(std::move(low));
        }
        counts = std::move(below_counts);
        numbers = std::move(below);
    }
    for (std::size_t at = 0; at < counts.size(); ++at) {
        const Word room = pascal.of[levels[0][at]][counts[at]];
        if (numbers[at].size() > 1 || (!numbers[at].empty() && numbers[at][0] >= room)) return false;
    }
    for (std::size_t at = 0; at < counts.size(); ++at) {
        Word rest = numbers[at].empty() ? 0 : numbers[at][0];
        std::int64_t left = counts[at];
        std::uint8_t* mine = chosen + static_cast<std::int64_t>(at) * block;
        for (std::int64_t place = levels[0][at] - 1; place >= 0; --place) {
            const Word ways = pascal.of[place][left];
            const bool taken = rest >= ways;  // never where none is left: there rest = 0 and ways = 1
            mine[place] = taken;
            rest -= taken ? ways : 0;
            left -= taken;
        }
    }
    return true;
}

}  // namespace fedtide::codec
