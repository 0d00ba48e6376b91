// The Python side of columns.h: checks everything. See fedtide/columns.py and fedtide/data/virtual.py for the callers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>

#include "columns.h"
#include "require.h"

namespace nb = nanobind;
using namespace fedtide;

namespace {

template <class T>
using Vector = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
void require_aligned(const Vector<T>& array) {
    REQUIRE(reinterpret_cast<std::uintptr_t>(array.data()) % sizeof(T) == 0, "an array is not aligned in memory; pass a copy");
}

std::size_t longest(std::initializer_list<const Vector<std::uint64_t>*> columns) {
    std::size_t count = 1;
    for (const auto* each : columns)
        if (each->shape(0) != 1) count = each->shape(0);
    for (const auto* each : columns) {
        require_aligned(*each);
        REQUIRE(each->shape(0) == 1 || each->shape(0) == count, "columns must be equally long, or of one number");
    }
    return count;
}

Column column(const Vector<std::uint64_t>& given) { return {given.data(), given.shape(0) == 1 ? std::size_t{0} : std::size_t{1}}; }

template <class T>
nb::object owned(std::unique_ptr<T[]> values, std::initializer_list<std::size_t> shape) {
    T* data = values.release();
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T>(data, shape, owner));
}

template <class T>
std::unique_ptr<T[]> room(std::size_t count) {
    return std::unique_ptr<T[]>(new T[std::max<std::size_t>(count, 1)]);
}

nb::object py_lead(Vector<std::uint64_t> key, Vector<std::uint64_t> index, std::uint32_t place) {
    const std::size_t count = longest({&key, &index});
    auto next = room<std::uint64_t>(count);
    {
        const nb::gil_scoped_release release;
        lead(column(key), column(index), place, count, next.get());
    }
    return owned(std::move(next), {count});
}

nb::object py_units(Vector<std::uint64_t> key, Vector<std::uint64_t> device, Vector<std::uint64_t> draw, bool both) {
    const std::size_t count = longest({&key, &device, &draw});
    auto one = room<double>(count), other = both ? room<double>(count) : nullptr;
    {
        const nb::gil_scoped_release release;
        units(column(key), column(device), column(draw), count, one.get(), other.get());
    }
    return nb::make_tuple(owned(std::move(one), {count}), both ? owned(std::move(other), {count}) : nb::none());
}

nb::object py_draw_labels(std::uint64_t key, Vector<std::uint64_t> device, Vector<std::int64_t> size, double mass,
                          Vector<double> ends) {
    require_aligned(device);
    require_aligned(size);
    require_aligned(ends);
    const std::size_t count = device.shape(0), labels = ends.shape(0);
    REQUIRE(size.shape(0) == count, "device and size must be equally long");
    REQUIRE(labels >= 1 && labels <= 65536, "there must be 1 to 65536 labels");
    REQUIRE(mass > 0, "mass must be positive");
    double before = 0;
    for (std::size_t j = 0; j < labels; ++j) {
        REQUIRE(std::isfinite(ends.data()[j]) && ends.data()[j] > before, "ends must be ascending from above 0");
        before = ends.data()[j];
    }
    for (std::size_t i = 0; i < count; ++i)
        REQUIRE(size.data()[i] >= 0 && size.data()[i] < (std::int64_t{1} << 40), "a size is out of range");
    auto counts = room<std::int64_t>(count * labels);
    {
        const nb::gil_scoped_release release;
        std::fill(counts.get(), counts.get() + count * labels, std::int64_t{0});
        draw_labels(key, device.data(), size.data(), count, {mass, ends.data(), static_cast<int>(labels)}, counts.get());
    }
    return owned(std::move(counts), {count, labels});
}

}  // namespace

void bind_columns(nb::module_& m) {
    m.def("lead", &py_lead, nb::arg("key").noconvert(), nb::arg("index").noconvert(), nb::arg("place"),
          "Lead keys on by an index that stands at this place of an address.");
    m.def("units", &py_units, nb::arg("key").noconvert(), nb::arg("device").noconvert(), nb::arg("draw").noconvert(),
          nb::arg("both"), "Return two numbers in [0, 1) at each address, or one and None.");
    m.def("draw_labels", &py_draw_labels, nb::arg("key"), nb::arg("device").noconvert(), nb::arg("size").noconvert(),
          nb::arg("mass"), nb::arg("ends").noconvert(), "Draw labels of each device from an urn and count them.");
}
