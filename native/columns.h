// Addressed draws of many devices in one pass: tests/twins/columns.py does the same with NumPy, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fedtide {

// A column: one number each, or one for all (step 0).
struct Column {
    const std::uint64_t* data;
    std::size_t step;  // 1 or 0
    std::uint64_t at(std::size_t i) const { return data[step * i]; }
};

// Leads keys on by an index that stands at this place of the address: next [count].
void lead(Column key, Column index, std::uint32_t place, std::size_t count, std::uint64_t* next);

// Two numbers in [0, 1) of 53 bits at each address: one [count], other [count] or null if nobody asks for it.
void units(Column key, Column device, Column draw, std::size_t count, double* one, double* other);

// What the labels of samples are drawn from: an urn that holds `mass` of new labels, in the shares of `ends`.
struct Urn {
    double mass;         // infinite: no label is ever repeated because it was drawn before
    const double* ends;  // cumulated weights of the labels, ascending [num_labels]
    int num_labels;
};

// Draws so many labels for each device, one after the other (Polya's urn), and counts them: counts [count num_labels], zeros before.
void draw_labels(std::uint64_t key, const std::uint64_t* device, const std::int64_t* size, std::size_t count, const Urn& urn,
                 std::int64_t* counts);

}  // namespace fedtide
