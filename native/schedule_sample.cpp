// Swaps of which a random sample is looked at; fedtide/schedule/label_variance.py says why. tests/twins/swaps.py takes the same
// steps with NumPy.
#include "schedule.h"
#include "schedule_blocks.h"

namespace fedtide::schedule {

namespace {

std::size_t u(std::int64_t index) { return static_cast<std::size_t>(index); }

struct Swap {
    std::int64_t member, other;
};

template <class T>
class Sample {
   public:
    Sample(const Rows& rows, std::int64_t size, const Effort& effort)
        : size_(size),
          width_(rows.width),
          others_(rows.count - size),
          effort_(effort),
          inside_(rows.value, rows.value + size * rows.width),
          outside_(others_, rows.width),
          number_(u(rows.count)),
          total_(u(rows.width), T{0}),
          left_(u(rows.width)),
          changes_(effort.kept, rows.width) {
        std::vector<T> row(u(width_));
        for (std::int64_t k = 0; k < rows.count; ++k) {
            number_[u(k)] = k;
            std::copy(rows.value + k * width_, rows.value + (k + 1) * width_, row.begin());
            if (k >= size) outside_.put(k - size, row.data());
            if (k < size)
                for (std::int64_t j = 0; j < width_; ++j) total_[u(j)] += row[u(j)];
        }
    }

    Found search(std::int64_t enough, const Look& look) {
        const std::int64_t blocks = (others_ + effort_.block - 1) / effort_.block;
        for (std::int64_t visit = 0; visit < effort_.visits && norm(total_) > static_cast<T>(enough); ++visit) {
            if (visit % 64 == 0) look();
            const Swap found = best_of(visit % size_, (visit + visit / size_) % blocks * effort_.block);
            kept_.push_back(found);
            if (helps_) {
                make(found);
                kept_.clear();
            } else if (static_cast<std::int64_t>(kept_.size()) == effort_.kept) {
                look();
                for (const Swap& each : pair()) make(each);
                kept_.clear();
            }
        }
        Found result{{number_.begin(), number_.begin() + size_}, static_cast<std::int64_t>(norm(total_))};
        std::sort(result.picked.begin(), result.picked.end());
        return result;
    }

   private:
    // The best of a block of others in the place of a member, of equals the first.
    Swap best_of(std::int64_t member, std::int64_t first) {
        const std::int64_t last = std::min(first + effort_.block, others_);
        for (std::int64_t j = 0; j < width_; ++j) left_[u(j)] = total_[u(j)] - inside_[u(member * width_ + j)];
        const T least = outside_.compare(left_.data(), first, last);
        std::int64_t place = first;
        while (outside_.value(place) != least) ++place;
        helps_ = least + norm(left_) < norm(total_);
        return {member, place};
    }

    void make(const Swap& swap) {
        std::vector<T> entering(u(width_));
        outside_.get(swap.other, entering.data());
        T* leaving = inside_.data() + swap.member * width_;
        outside_.put(swap.other, leaving);
        for (std::int64_t j = 0; j < width_; ++j) {
            total_[u(j)] += entering[u(j)] - leaving[j];
            leaving[j] = entering[u(j)];
        }
        std::swap(number_[u(swap.member)], number_[u(size_ + swap.other)]);
    }

    // The two kept swaps that are best together, of equals the first; none if they do not help.
    std::vector<Swap> pair() {
        std::vector<T> changes(u(effort_.kept * width_)), row(u(width_));
        for (std::int64_t k = 0; k < effort_.kept; ++k) {
            outside_.get(kept_[u(k)].other, row.data());
            for (std::int64_t j = 0; j < width_; ++j) row[u(j)] -= inside_[u(kept_[u(k)].member * width_ + j)];
            changes_.put(k, row.data());
            std::copy(row.begin(), row.end(), changes.begin() + k * width_);
        }
        T best = norm(total_);
        std::vector<Swap> chosen;
        for (std::int64_t one = 0; one + 1 < effort_.kept; ++one) {
            for (std::int64_t j = 0; j < width_; ++j) row[u(j)] = total_[u(j)] + changes[u(one * width_ + j)];
            const T after = norm(row);
            if (changes_.compare(row.data(), one + 1, effort_.kept) + after >= best) continue;
            for (std::int64_t two = one + 1; two < effort_.kept; ++two) {
                const Swap &a = kept_[u(one)], &b = kept_[u(two)];
                if (changes_.value(two) + after >= best || a.member == b.member || a.other == b.other) continue;
                best = changes_.value(two) + after;
                chosen = {a, b};
            }
        }
        return chosen;
    }

    const std::int64_t size_, width_, others_;
    const Effort effort_;
    std::vector<T> inside_;              // [size width]
    Blocks<T> outside_;                  // the others
    std::vector<std::int64_t> number_;   // of the row in every place, members first
    std::vector<T> total_, left_;
    Blocks<T> changes_;                  // what each kept swap adds to the sum
    std::vector<Swap> kept_;             // since the last one that was made
    bool helps_ = false;                 // does what best_of found?
};

}  // namespace

Found sample(const Rows& rows, std::int64_t size, std::int64_t enough, const Effort& effort, const Look& look) {
    return largest(rows, size) < most_in_double ? Sample<double>(rows, size, effort).search(enough, look)
                                                : Sample<std::int64_t>(rows, size, effort).search(enough, look);
}

}  // namespace fedtide::schedule
