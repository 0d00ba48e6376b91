// Branch and bound. Rows are seen in the coordinates in which they spread most; what can still be added to a coordinate
// lies in an interval that is tabulated beforehand, and a node whose intervals keep the sum too far from the origin is left
// out. Floating point numbers only leave out, and with room for every rounding; what is found is compared in whole numbers.
// This file is compiled without contraction, so the numbers, and with them the steps, are the same on every machine.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "schedule.h"

namespace fedtide::schedule {

namespace {

constexpr double epsilon = std::numeric_limits<double>::epsilon();
constexpr int sweeps = 30;                   // of Jacobi's rotations; ten labels need about six
constexpr std::int64_t rounds = 100;          // towards a separating direction
constexpr std::int64_t look_every = 1 << 14;  // nodes

std::size_t u(std::int64_t index) { return static_cast<std::size_t>(index); }

// Columns of the result are orthonormal and make `matrix` [n n] diagonal; those with the most spread come first.
std::vector<double> eigenvectors(std::vector<double> matrix, std::int64_t n) {
    std::vector<double> turned(u(n * n), 0.0);
    for (std::int64_t i = 0; i < n; ++i) turned[u(i * n + i)] = 1.0;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        double off = 0, on = 0;
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < n; ++j) (i == j ? on : off) += matrix[u(i * n + j)] * matrix[u(i * n + j)];
        if (off <= epsilon * epsilon * on) break;
        for (std::int64_t p = 0; p < n; ++p) {
            for (std::int64_t q = p + 1; q < n; ++q) {
                const double across = matrix[u(p * n + q)];
                if (across == 0) continue;
                const double theta = (matrix[u(q * n + q)] - matrix[u(p * n + p)]) / (2 * across);
                const double tangent = (theta < 0 ? -1.0 : 1.0) / (std::abs(theta) + std::sqrt(theta * theta + 1));
                const double cosine = 1 / std::sqrt(tangent * tangent + 1), sine = tangent * cosine;
                for (std::int64_t k = 0; k < n; ++k) {
                    const double a = matrix[u(k * n + p)], b = matrix[u(k * n + q)];
                    matrix[u(k * n + p)] = cosine * a - sine * b;
                    matrix[u(k * n + q)] = sine * a + cosine * b;
                }
                for (std::int64_t k = 0; k < n; ++k) {
                    const double a = matrix[u(p * n + k)], b = matrix[u(q * n + k)];
                    matrix[u(p * n + k)] = cosine * a - sine * b;
                    matrix[u(q * n + k)] = sine * a + cosine * b;
                }
                for (std::int64_t k = 0; k < n; ++k) {
                    const double a = turned[u(k * n + p)], b = turned[u(k * n + q)];
                    turned[u(k * n + p)] = cosine * a - sine * b;
                    turned[u(k * n + q)] = sine * a + cosine * b;
                }
            }
        }
    }
    std::vector<std::int64_t> order(u(n));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return matrix[u(a * n + a)] > matrix[u(b * n + b)]; });
    std::vector<double> sorted(u(n * n));
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < n; ++j) sorted[u(i * n + j)] = turned[u(i * n + order[u(j)])];
    return sorted;
}

// The sum of the products of rows' deviations from their mean.
std::vector<double> spread(const Rows& rows) {
    const std::int64_t n = rows.width;
    std::vector<double> mean(u(n), 0.0), found(u(n * n), 0.0), each(u(n));
    for (std::int64_t k = 0; k < rows.count; ++k)
        for (std::int64_t j = 0; j < n; ++j) mean[u(j)] += static_cast<double>(rows.value[k * n + j]);
    for (double& value : mean) value /= static_cast<double>(rows.count);
    for (std::int64_t k = 0; k < rows.count; ++k) {
        for (std::int64_t j = 0; j < n; ++j) each[u(j)] = static_cast<double>(rows.value[k * n + j]) - mean[u(j)];
        for (std::int64_t i = 0; i < n; ++i)
            for (std::int64_t j = 0; j < n; ++j) found[u(i * n + j)] += each[u(i)] * each[u(j)];
    }
    return found;
}

// Orthonormal axes: those in which the rows spread most, after the direction that keeps sums from the origin, if there is one.
std::vector<double> axes_of(const Rows& rows, const Cut& cut) {
    const std::int64_t n = rows.width;
    std::vector<double> matrix = spread(rows);
    if (cut.below <= 0) return eigenvectors(std::move(matrix), n);
    std::vector<double> axis(u(n)), image(u(n), 0.0);
    double trace = 0, within = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        axis[u(i)] = static_cast<double>(cut.direction[u(i)]) / std::sqrt(static_cast<double>(cut.square));
        trace += matrix[u(i * n + i)];
    }
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t j = 0; j < n; ++j) image[u(i)] += matrix[u(i * n + j)] * axis[u(j)];
        within += image[u(i)] * axis[u(i)];
    }
    for (std::int64_t i = 0; i < n; ++i)  // nothing is left along the axis; then it is made the longest
        for (std::int64_t j = 0; j < n; ++j)
            matrix[u(i * n + j)] += (within + 2 * trace + 1) * axis[u(i)] * axis[u(j)] - axis[u(i)] * image[u(j)] -
                                    image[u(i)] * axis[u(j)];
    return eigenvectors(std::move(matrix), n);
}

// Chooses `take` rows to be added to `base`, depth first. If most rows are to be picked, it is those left out that are
// chosen: base is then the sum of all, and the rows count negatively.
class Tree {
    typedef double Vector __attribute__((vector_size(16), aligned(8), may_alias));

   public:
    Tree(const Rows& rows, std::int64_t size, const Cut& cut, const Look& look)
        : rows_(rows),
          leaves_out_(rows.count - size < size),
          take_(leaves_out_ ? rows.count - size : size),
          shown_(std::max<std::int64_t>(rows.width - 1, 1)),  // all but the direction in which nothing can differ
          padded_((shown_ + 1) / 2 * 2),
          look_(look),
          order_(u(rows.count)),
          base_(u(rows.width), 0),
          point_(u(rows.count * padded_), 0.0),
          low_(u((rows.count + 1) * (take_ + 1) * padded_), 0.0),
          high_(low_),
          sums_(u((take_ + 1) * padded_), 0.0),
          chosen_(u(take_)) {
        arrange();
        project(axes_of(rows, cut));
        tabulate();
    }

    // Looks for sets below `limit`, on at most `steps` nodes; true if all were looked at. What is found lowers the limit.
    bool search(std::int64_t limit, std::int64_t steps) {
        limit_ = limit;
        steps_ = steps;
        set_threshold();
        stopped_ = steps_ <= 0;
        if (!stopped_ && take_ > 0 && !far(0, take_, sums_.data())) below(0, take_);
        return !stopped_;
    }

    std::int64_t limit() const { return limit_; }
    std::int64_t steps_left() const { return steps_; }
    const Found& found() const { return found_; }
    std::int64_t enough = 0;  // no set is below: stop there

   private:
    std::int64_t signed_value(std::int64_t place, std::int64_t column) const {
        const std::int64_t value = rows_.value[order_[u(place)] * rows_.width + column];
        return leaves_out_ ? -value : value;
    }

    // The longest rows first: what remains to be chosen deep in the tree can then change little.
    void arrange() {
        std::vector<std::int64_t> length(u(rows_.count), 0);
        for (std::int64_t k = 0; k < rows_.count; ++k)
            for (std::int64_t j = 0; j < rows_.width; ++j) {
                const std::int64_t value = rows_.value[k * rows_.width + j];
                length[u(k)] += value * value;
                if (leaves_out_) base_[u(j)] += value;
            }
        std::iota(order_.begin(), order_.end(), std::int64_t{0});
        std::stable_sort(order_.begin(), order_.end(),
                         [&](std::int64_t a, std::int64_t b) { return length[u(a)] > length[u(b)]; });
    }

    void project(const std::vector<double>& axes) {
        const std::int64_t n = rows_.width;
        double widest = 0;
        for (std::int64_t j = 0; j < shown_; ++j) {
            for (std::int64_t k = 0; k < rows_.count; ++k) {
                double value = 0;
                for (std::int64_t i = 0; i < n; ++i) {
                    value += axes[u(i * n + j)] * static_cast<double>(signed_value(k, i));
                    widest = std::max(widest, std::abs(static_cast<double>(signed_value(k, i))));
                }
                point_[u(k * padded_ + j)] = value;
            }
            double value = 0;
            for (std::int64_t i = 0; i < n; ++i) value += axes[u(i * n + j)] * static_cast<double>(base_[u(i)]);
            sums_[u(j)] = value;
        }
        // A coordinate of a sum is off by less than this: m rows of at most sqrt(n) widest each, added up one by one, and
        // every one of them a sum of n products. Four times as much is allowed for.
        const double m = static_cast<double>(rows_.count), labels = static_cast<double>(n);
        slack_ = 4 * epsilon * (2 * m + labels + 8) * m * labels * widest;
        // The axes are orthonormal up to `skew`, so the squared coordinates add up to at most 1 + n skew times the square.
        double skew = 0;
        for (std::int64_t a = 0; a < n; ++a)
            for (std::int64_t b = 0; b < n; ++b) {
                double product = a == b ? -1.0 : 0.0;
                for (std::int64_t i = 0; i < n; ++i) product += axes[u(i * n + a)] * axes[u(i * n + b)];
                skew = std::max(skew, std::abs(product));
            }
        stretch_ = 1 + labels * (skew + 8 * labels * epsilon);
    }

    // low, high [count + 1, take + 1, padded]: what `rest` of the rows from `from` on add to a coordinate, at least and at most.
    void tabulate() {
        std::vector<double> sorted;
        for (std::int64_t j = 0; j < shown_; ++j) {
            sorted.clear();
            for (std::int64_t from = rows_.count; from-- > 0;) {
                const double value = point_[u(from * padded_ + j)];
                sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), value), value);
                double low = 0, high = 0;
                const auto there = static_cast<std::int64_t>(sorted.size());
                for (std::int64_t rest = 1; rest <= std::min(take_, there); ++rest) {
                    low += sorted[u(rest - 1)];
                    high += sorted[u(there - rest)];
                    low_[u(cell(from, rest) + j)] = low;
                    high_[u(cell(from, rest) + j)] = high;
                }
            }
        }
        for (double& value : low_) value -= slack_;
        for (double& value : high_) value += slack_;
    }

    std::int64_t cell(std::int64_t from, std::int64_t rest) const { return (from * (take_ + 1) + rest) * padded_; }

    void set_threshold() {
        threshold_ = static_cast<double>(limit_ - 1) * (stretch_ + 8 * static_cast<double>(rows_.width) * epsilon);
    }

    // Whether no choice of `rest` of the rows from `from` on brings the sum below the limit.
    bool far(std::int64_t from, std::int64_t rest, const double* sum) const {
        const auto* low = reinterpret_cast<const Vector*>(low_.data() + cell(from, rest));
        const auto* high = reinterpret_cast<const Vector*>(high_.data() + cell(from, rest));
        const auto* at = reinterpret_cast<const Vector*>(sum);
        Vector total{};
        for (std::int64_t j = 0; j < padded_ / 2; ++j) {
            const Vector above = at[j] + low[j], under = -(at[j] + high[j]);
            Vector away = above > under ? above : under;
            away = away > 0.0 ? away : Vector{};
            total += away * away;
        }
        return total[0] + total[1] > threshold_;
    }

    void below(std::int64_t from, std::int64_t rest) {
        const double* sum = sums_.data() + (take_ - rest) * padded_;
        double* next = sums_.data() + (take_ - rest + 1) * padded_;
        for (std::int64_t place = from; place + rest <= rows_.count; ++place) {
            if (--steps_ < 0) stopped_ = true;
            if (steps_ % look_every == 0) look_();
            if (stopped_) return;
            const double* point = point_.data() + place * padded_;
            for (std::int64_t j = 0; j < padded_; ++j) next[j] = sum[j] + point[j];
            if (far(place + 1, rest - 1, next)) {
                if (rest > 1 && far(place, rest, sum)) return;  // those after it have even fewer to choose from
                continue;
            }
            chosen_[u(take_ - rest)] = place;
            if (rest == 1) {
                leaf();
            } else {
                below(place + 1, rest - 1);
            }
            if (stopped_ || limit_ <= enough) return;
        }
    }

    void leaf() {
        std::int64_t value = 0;
        for (std::int64_t j = 0; j < rows_.width; ++j) {
            std::int64_t total = base_[u(j)];
            for (const std::int64_t place : chosen_) total += signed_value(place, j);
            value += total * total;
        }
        if (value >= limit_) return;
        limit_ = value;
        set_threshold();
        std::vector<bool> marked(u(rows_.count), leaves_out_);
        for (const std::int64_t place : chosen_) marked[u(order_[u(place)])] = !leaves_out_;
        found_ = {{}, value};
        for (std::int64_t k = 0; k < rows_.count; ++k)
            if (marked[u(k)]) found_.picked.push_back(k);
    }

    const Rows rows_;
    const bool leaves_out_;
    const std::int64_t take_, shown_, padded_;
    const Look& look_;
    std::vector<std::int64_t> order_, base_;
    std::vector<double> point_, low_, high_, sums_;  // sums_: a row for each depth
    std::vector<std::int64_t> chosen_;
    double slack_ = 0, stretch_ = 1, threshold_ = 0;
    std::int64_t limit_ = 0, steps_ = 0;
    bool stopped_ = false;
    Found found_{{}, 0};
};

}  // namespace

Proof branch(const Rows& rows, std::int64_t size, std::int64_t reached, std::int64_t enough, std::int64_t steps,
             const Look& look) {
    Proof proof{{{}, reached}, enough, 0};
    if (reached <= enough || steps <= 0) return proof;
    Tree tree(rows, size, separate(rows, size, rounds, look), look);
    tree.enough = enough;
    // Most of the steps for all of it. If that does not do, less is asked: that nothing lies just above the bound.
    std::int64_t span = reached - enough, left = steps, share = steps - steps / 4;
    while (left > 0 && proof.bound < proof.found.reached && span > reached / 1000) {
        const bool all = tree.search(std::min(proof.bound + span, proof.found.reached), share);
        left -= share - std::max<std::int64_t>(tree.steps_left(), 0);
        if (!tree.found().picked.empty()) proof.found = tree.found();
        if (all) proof.bound = tree.limit();
        span = all ? 2 * span : span / 8;
        share = all ? left : left - left / 2;
    }
    proof.steps = steps - left;
    return proof;
}

Cut separate(const Rows& rows, std::int64_t size, std::int64_t rounds, const Look& look) {
    const std::int64_t n = rows.width;
    std::vector<double> at(u(n), 0.0), score(u(rows.count)), corner(u(n));
    std::vector<std::int64_t> order(u(rows.count)), whole(u(rows.count));
    for (std::int64_t k = 0; k < rows.count; ++k)  // begin in the middle: the mean of all sets
        for (std::int64_t j = 0; j < n; ++j) at[u(j)] += static_cast<double>(rows.value[k * n + j]);
    for (double& value : at) value *= static_cast<double>(size) / static_cast<double>(rows.count);
    const auto last = order.begin() + static_cast<std::ptrdiff_t>(size);
    for (std::int64_t round = 0; round < rounds; ++round) {
        look();
        for (std::int64_t k = 0; k < rows.count; ++k) {
            score[u(k)] = 0;
            for (std::int64_t j = 0; j < n; ++j) score[u(k)] += at[u(j)] * static_cast<double>(rows.value[k * n + j]);
        }
        std::iota(order.begin(), order.end(), std::int64_t{0});
        std::nth_element(order.begin(), last, order.end(), [&](std::int64_t a, std::int64_t b) {
            return score[u(a)] < score[u(b)] || (score[u(a)] == score[u(b)] && a < b);
        });
        std::sort(order.begin(), last);  // their order decides on the rounding of the sum
        std::fill(corner.begin(), corner.end(), 0.0);
        for (auto each = order.begin(); each != last; ++each)
            for (std::int64_t j = 0; j < n; ++j) corner[u(j)] += static_cast<double>(rows.value[*each * n + j]);
        double along = 0, length = 0;
        for (std::int64_t j = 0; j < n; ++j) {
            const double step = at[u(j)] - corner[u(j)];
            along += at[u(j)] * step;
            length += step * step;
        }
        if (!(along > 0) || length == 0) break;
        const double part = std::min(along / length, 1.0);
        for (std::int64_t j = 0; j < n; ++j) at[u(j)] += part * (corner[u(j)] - at[u(j)]);
    }
    double widest = 0;
    for (const double value : at) widest = std::max(widest, std::abs(value));
    Cut cut{std::vector<std::int64_t>(u(n), 0), 0, 0};
    if (widest == 0) return cut;
    for (std::int64_t j = 0; j < n; ++j) {
        cut.direction[u(j)] = static_cast<std::int64_t>(std::floor(at[u(j)] / widest * 1024.0 + 0.5));
        cut.square += cut.direction[u(j)] * cut.direction[u(j)];
    }
    for (std::int64_t k = 0; k < rows.count; ++k) {
        whole[u(k)] = 0;
        for (std::int64_t j = 0; j < n; ++j) whole[u(k)] += cut.direction[u(j)] * rows.value[k * n + j];
    }
    std::nth_element(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size), whole.end());
    for (std::int64_t k = 0; k < size; ++k) cut.below += whole[u(k)];
    return cut;
}

}  // namespace fedtide::schedule
