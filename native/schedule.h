// The set of rows with the least ||sum of rows||^2: swaps from given starts, and a tree that proves. See
// fedtide/schedule/label_variance.py for the problem. Values are whole numbers and compared exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace fedtide::schedule {

// Centred label counts, row by row.
struct Rows {
    const std::int64_t* value;  // [count width]
    std::int64_t count, width;
};

struct Found {
    std::vector<std::int64_t> picked;  // ascending; empty if nothing better was found
    std::int64_t reached;              // ||sum||^2 of it
};

struct Proof {
    Found found;
    std::int64_t bound;  // no set has less
    std::int64_t steps;  // that were taken
};

struct Cut {
    std::vector<std::int64_t> direction;  // u [width]
    std::int64_t below;  // the least u . sum of any set
    std::int64_t square;  // ||u||^2; below > 0 proves ||sum||^2 >= below^2 / square
};

// Of a search that looks at a part of all swaps. A block is a multiple of eight.
struct Effort {
    std::int64_t block;   // others that a member is compared with at once
    std::int64_t visits;  // of members, at most
    std::int64_t kept;    // swaps that did not help, of which pairs are tried
};

using Look = std::function<void()>;  // called now and then; throws if the call is to end

// Whether sums of up to `size` rows and their products are whole numbers below 2^62.
bool fits(const Rows& rows, std::int64_t size);

// Best-improvement swaps from the greedy set and then from every start [num_starts count]: of the sets that are reached, the
// first with the least value. Ends early after a start that reaches `enough`, which no set is below.
Found descend(const Rows& rows, std::int64_t size, const bool* starts, std::int64_t num_starts, std::int64_t enough,
              const Look& look);

// Swaps at random from `start` [count] and descends again, over and over; what is better becomes the next start. A step is a
// member that is compared with up to 32 others.
Found disturb(const Rows& rows, std::int64_t size, const bool* start, std::int64_t enough, std::uint64_t seed,
              std::int64_t steps, const Look& look);

// Swaps among the first `size` rows and the others, one member after the other with one block of others after the other.
Found sample(const Rows& rows, std::int64_t size, std::int64_t enough, const Effort& effort, const Look& look);

// Searches a tree for sets below `reached`, of at most `steps` nodes, and says what that proves. `enough`: no set is below.
Proof branch(const Rows& rows, std::int64_t size, std::int64_t reached, std::int64_t enough, std::int64_t steps,
             const Look& look);

// The hyperplane that keeps sums of `size` rows farthest from the origin, as far as `rounds` steps towards it find one.
Cut separate(const Rows& rows, std::int64_t size, std::int64_t rounds, const Look& look);

}  // namespace fedtide::schedule
