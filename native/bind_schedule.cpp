// The Python side of the search for the least label variance: checks, then calls. See fedtide/schedule/label_variance.py for the callers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "schedule.h"

namespace nb = nanobind;
using namespace fedtide::schedule;

namespace {

using Matrix = nb::ndarray<const std::int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Starts = nb::ndarray<const bool, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Picked = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>>;

Rows checked(const Matrix& centred, std::int64_t size) {
    const Rows rows{centred.data(), static_cast<std::int64_t>(centred.shape(0)), static_cast<std::int64_t>(centred.shape(1))};
    if (size < 1 || size >= rows.count || rows.width < 1)
        throw std::invalid_argument("size is " + std::to_string(size) + ", and there are " + std::to_string(rows.count) + " rows");
    if (reinterpret_cast<std::uintptr_t>(rows.value) % alignof(std::int64_t) != 0)
        throw std::invalid_argument("centred is not aligned in memory; pass a copy");
    if (!fits(rows, size)) throw std::invalid_argument("the squares of sums of these rows leave the range of whole numbers");
    return rows;
}

std::int64_t checked(const Starts& starts, const Rows& rows, std::int64_t size) {
    const auto count = static_cast<std::int64_t>(starts.shape(0));
    if (static_cast<std::int64_t>(starts.shape(1)) != rows.count)
        throw std::invalid_argument("starts speak of another number of rows");
    for (std::int64_t start = 0; start < count; ++start)
        if (std::count(starts.data() + start * rows.count, starts.data() + (start + 1) * rows.count, true) != size)
            throw std::invalid_argument("start " + std::to_string(start) + " does not hold size rows");
    return count;
}

// The lock of the interpreter is held throughout, so signals may be asked for at any time.
void look() {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

Picked array(const std::vector<std::int64_t>& values) {
    auto* copy = new std::int64_t[values.size() + 1];
    std::copy(values.begin(), values.end(), copy);
    const nb::capsule owner(copy, [](void* p) noexcept { delete[] static_cast<std::int64_t*>(p); });
    return Picked(copy, {values.size()}, owner);
}

std::tuple<Picked, std::int64_t> descend_rows(Matrix centred, std::int64_t size, Starts starts, std::int64_t enough) {
    const Rows rows = checked(centred, size);
    const std::int64_t count = checked(starts, rows, size);
    const Found found = descend(rows, size, starts.data(), count, enough, look);
    return {array(found.picked), found.reached};
}

std::tuple<Picked, std::int64_t> disturb_rows(Matrix centred, std::int64_t size, Starts start, std::int64_t enough,
                                              std::uint64_t seed, std::int64_t steps) {
    const Rows rows = checked(centred, size);
    if (checked(start, rows, size) != 1) throw std::invalid_argument("there must be one start");
    const Found found = disturb(rows, size, start.data(), enough, seed, steps, look);
    return {array(found.picked), found.reached};
}

std::tuple<Picked, std::int64_t> sample_rows(Matrix centred, std::int64_t size, std::int64_t enough, std::int64_t block,
                                             std::int64_t visits, std::int64_t kept) {
    const Rows rows = checked(centred, size);
    if (block < 8 || block % 8 != 0 || kept < 2) throw std::invalid_argument("a block is a multiple of 8, and two swaps are a pair");
    const Found found = sample(rows, size, enough, {block, visits, kept}, look);
    return {array(found.picked), found.reached};
}

std::tuple<Picked, std::int64_t, std::int64_t, std::int64_t> branch_rows(Matrix centred, std::int64_t size,
                                                                         std::int64_t reached, std::int64_t enough,
                                                                         std::int64_t steps) {
    const Proof proof = branch(checked(centred, size), size, reached, enough, steps, look);
    return {array(proof.found.picked), proof.found.reached, proof.bound, proof.steps};
}

std::tuple<std::int64_t, std::int64_t> separate_rows(Matrix centred, std::int64_t size, std::int64_t rounds) {
    const Cut cut = separate(checked(centred, size), size, rounds, look);
    return {cut.below, cut.square};
}

}  // namespace

void bind_schedule(nb::module_& m) {
    m.def("descend", &descend_rows, nb::arg("centred").noconvert(), nb::arg("size"), nb::arg("starts").noconvert(),
          nb::arg("enough"), "Swap from the greedy set and from every start; return the best set and its value.");
    m.def("disturb", &disturb_rows, nb::arg("centred").noconvert(), nb::arg("size"), nb::arg("start").noconvert(),
          nb::arg("enough"), nb::arg("seed"), nb::arg("steps"),
          "Swap at random and descend again, over and over; return the best set and its value.");
    m.def("sample", &sample_rows, nb::arg("centred").noconvert(), nb::arg("size"), nb::arg("enough"), nb::arg("block"),
          nb::arg("visits"), nb::arg("kept"), "Swap among the first rows and the others; return the set and its value.");
    m.def("branch", &branch_rows, nb::arg("centred").noconvert(), nb::arg("size"), nb::arg("reached"), nb::arg("enough"),
          nb::arg("steps"), "Search a tree for better sets; return one, or none, with what it reaches, what is proved, and the steps.");
    m.def("separate", &separate_rows, nb::arg("centred").noconvert(), nb::arg("size"), nb::arg("rounds"),
          "Return the least u . sum for a direction u that keeps sums from the origin, and the square of u.");
}
