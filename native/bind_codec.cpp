// The Python side of the codecs: checks lengths, then hands the updates out to threads. See fedtide/codec for the
// callers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "bind_codec.h"
#include "codec.h"
#include "require.h"

namespace nb = nanobind;
using namespace fedtide::codec;

namespace {

using Update = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Chosen = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Decoded = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

// Those at work have one each; what it has worked out waits here for the next call.
class Pool {
  public:
    std::unique_ptr<Subsets> take() {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (free_.empty()) return std::make_unique<Subsets>();
        std::unique_ptr<Subsets> taken = std::move(free_.back());
        free_.pop_back();
        return taken;
    }
    void give(std::unique_ptr<Subsets> back) {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (free_.size() < 64) free_.push_back(std::move(back));
    }

  private:
    std::mutex mutex_;
    std::vector<std::unique_ptr<Subsets>> free_;
};

Pool& pool() {
    static Pool* made = new Pool;  // never deleted: threads may end after the statics do
    return *made;
}

// Calls work(item, subsets) for every item on up to `threads` threads; no result depends on who did which.
template <class Work>
void for_each_update(std::size_t items, int threads, Work work) {
    const nb::gil_scoped_release release;
    std::atomic<std::size_t> next{0};
    std::mutex mutex;
    std::exception_ptr failed;
    const auto loop = [&] {
        try {
            std::unique_ptr<Subsets> subsets = pool().take();
            for (std::size_t item = next++; item < items; item = next++) work(item, *subsets);
            pool().give(std::move(subsets));
        } catch (...) {
            const std::lock_guard<std::mutex> lock(mutex);
            failed = std::current_exception();
        }
    };
    const std::size_t used = std::min(items, static_cast<std::size_t>(std::max(threads, 1)));
    std::vector<std::thread> others;
    others.reserve(used);  // so that nothing but starting a thread can fail below
    try {
        for (std::size_t i = 1; i < used; ++i) others.emplace_back(loop);
    } catch (const std::system_error&) {  // fewer threads than wished do as well
    }
    loop();
    for (std::thread& other : others) other.join();
    if (failed) std::rethrow_exception(failed);
}

BitGenerator& generator(const nb::capsule& draws) {
    auto* found = static_cast<BitGenerator*>(PyCapsule_GetPointer(draws.ptr(), "BitGenerator"));
    if (!found) throw nb::python_error();
    return *found;
}

// One for each update. Updates that share one are encoded in order, on one thread.
std::vector<BitGenerator*> generators(const std::vector<nb::capsule>& draws, std::size_t count, int* threads) {
    REQUIRE(draws.size() == count, "there must be a generator for each update");
    std::vector<BitGenerator*> found;
    std::set<const void*> states;
    for (const nb::capsule& each : draws) {
        found.push_back(&generator(each));
        states.insert(found.back()->state);
    }
    if (states.size() < found.size()) *threads = 1;
    return found;
}

std::int64_t length_of(const std::vector<Update>& updates) {
    REQUIRE(!updates.empty(), "there are no updates");
    for (const Update& update : updates)
        REQUIRE(update.shape(0) == updates[0].shape(0), "the updates differ in length");
    const auto d = static_cast<std::int64_t>(updates[0].shape(0));
    REQUIRE(d > 0 && d < (std::int64_t{1} << 32), "an update must have from 1 to 2^32 - 1 elements");
    return d;
}

nb::list as_bytes(const std::vector<std::string>& payloads) {
    nb::list made;
    for (const std::string& each : payloads) made.append(nb::bytes(each.data(), each.size()));
    return made;
}

std::vector<Payload> views(const std::vector<nb::bytes>& payloads) {
    std::vector<Payload> made;
    for (const nb::bytes& each : payloads) made.push_back({static_cast<const std::uint8_t*>(each.data()), each.size()});
    return made;
}

// decode(item, subsets, row [d]) -> Refusal for every item; rows [r d], and what is wrong with each.
template <class Decode>
std::tuple<Decoded, std::vector<int>> decoded(std::size_t count, std::int64_t d, int threads, Decode decode) {
    REQUIRE(d > 0 && d < (std::int64_t{1} << 32), "num_parameters must be from 1 to 2^32 - 1");
    const auto size = static_cast<std::size_t>(d);
    auto owned = std::make_unique<float[]>(std::max<std::size_t>(count * size, 1));
    std::vector<int> refused(count);
    for_each_update(count, threads, [&](std::size_t item, Subsets& subsets) {
        refused[item] = static_cast<int>(decode(item, subsets, owned.get() + item * size));
    });
    float* rows = owned.release();
    const nb::capsule owner(rows, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return {Decoded(rows, {count, size}, owner), refused};
}

Sparse sparse_shape(std::int64_t d, std::int64_t kept, int num_levels, int element_bits) {
    REQUIRE(kept >= 1 && kept <= d, "num_kept must be from 1 to d");
    REQUIRE(num_levels >= 1 && num_levels <= 32767, "num_levels must be from 1 to 32767");
    REQUIRE(element_bits >= 1 && element_bits <= 64, "element_bits must be from 1 to 64");
    return {d, kept, num_levels, element_bits};
}

nb::list sparse_encode(const std::vector<Update>& updates, const std::vector<std::int64_t>& num_kept, int num_levels,
                       int element_bits, const std::vector<nb::capsule>& draws, int threads) {
    const std::int64_t d = length_of(updates);
    const std::vector<BitGenerator*> each = generators(draws, updates.size(), &threads);
    REQUIRE(num_kept.size() == updates.size(), "there must be a num_kept for each update");
    for (const std::int64_t kept : num_kept) sparse_shape(d, kept, num_levels, element_bits);
    std::vector<std::string> payloads(updates.size());
    for_each_update(updates.size(), threads, [&](std::size_t item, Subsets& subsets) {
        payloads[item] =
            encode_sparse({d, num_kept[item], num_levels, element_bits}, updates[item].data(), *each[item], subsets);
    });
    return as_bytes(payloads);
}

std::tuple<Decoded, std::vector<int>> sparse_decode(const std::vector<nb::bytes>& payloads,
                                                    const std::vector<std::int64_t>& num_kept,
                                                    std::int64_t num_parameters, int num_levels, int element_bits,
                                                    int threads) {
    REQUIRE(num_kept.size() == payloads.size(), "there must be a num_kept for each payload");
    for (const std::int64_t kept : num_kept) sparse_shape(num_parameters, kept, num_levels, element_bits);
    const std::vector<Payload> each = views(payloads);
    return decoded(payloads.size(), num_parameters, threads, [&](std::size_t item, Subsets& subsets, float* row) {
        return decode_sparse({num_parameters, num_kept[item], num_levels, element_bits}, each[item], subsets, row);
    });
}

double least_bits(std::int64_t num_parameters) {
    REQUIRE(num_parameters > 0 && num_parameters < (std::int64_t{1} << 32),
            "num_parameters must be from 1 to 2^32 - 1");
    return dead_zone_least_bits(num_parameters);
}

// Payloads with their bits.
nb::list with_bits(const std::vector<std::string>& payloads, const std::vector<std::int64_t>& bits) {
    nb::list made;
    for (std::size_t i = 0; i < payloads.size(); ++i)
        made.append(nb::make_tuple(nb::bytes(payloads[i].data(), payloads[i].size()), bits[i]));
    return made;
}

nb::list dead_zone_encode(const std::vector<Update>& updates, const std::vector<std::int64_t>& whole_bits,
                          const std::vector<nb::capsule>& draws, int threads) {
    const std::int64_t d = length_of(updates);
    const std::vector<BitGenerator*> each = generators(draws, updates.size(), &threads);
    REQUIRE(whole_bits.size() == updates.size(), "there must be a budget for each update");
    std::vector<std::string> payloads(updates.size());
    std::vector<std::int64_t> bits(updates.size());
    for_each_update(updates.size(), threads, [&](std::size_t item, Subsets&) {
        payloads[item] = encode_dead_zone(updates[item].data(), d, whole_bits[item], *each[item], &bits[item]);
    });
    return with_bits(payloads, bits);
}

std::tuple<Decoded, std::vector<int>> dead_zone_decode(const std::vector<nb::bytes>& payloads,
                                                       const std::vector<std::int64_t>& payload_bits,
                                                       std::int64_t num_parameters, int threads) {
    REQUIRE(payload_bits.size() == payloads.size(), "there must be a length for each payload");
    const std::vector<Payload> each = views(payloads);
    for (const std::int64_t bits : payload_bits) REQUIRE(bits > 43, "a payload has more than 43 bits");
    return decoded(payloads.size(), num_parameters, threads, [&](std::size_t item, Subsets&, float* row) {
        return decode_dead_zone(each[item], payload_bits[item], num_parameters, row);
    });
}

nb::list qsgd_encode(const std::vector<Update>& updates, const std::vector<double>& budgets, int num_levels,
                     const std::vector<nb::capsule>& draws, int threads) {
    const std::int64_t d = length_of(updates);
    const std::vector<BitGenerator*> each = generators(draws, updates.size(), &threads);
    REQUIRE(budgets.size() == updates.size(), "there must be a budget for each update");
    REQUIRE(num_levels >= 1 && num_levels <= 1 << 20, "num_levels must be from 1 to 2^20");
    // a zero update takes 31 bits and those of d: with less, the search for a step would not end
    for (const double budget : budgets)
        REQUIRE(budget >= 31 + bits_of(static_cast<Word>(d)), "a budget must have room for the update of zeros");
    std::vector<std::string> payloads(updates.size());
    std::vector<std::int64_t> bits(updates.size());
    for_each_update(updates.size(), threads, [&](std::size_t item, Subsets& subsets) {
        payloads[item] =
            encode_qsgd(updates[item].data(), d, budgets[item], num_levels, *each[item], subsets, &bits[item]);
    });
    return with_bits(payloads, bits);
}

std::tuple<Decoded, std::vector<int>> qsgd_decode(const std::vector<nb::bytes>& payloads,
                                                  const std::vector<std::int64_t>& payload_bits,
                                                  const std::vector<std::int64_t>& num_nonzero,
                                                  std::int64_t num_parameters, int threads) {
    REQUIRE(payload_bits.size() == payloads.size() && num_nonzero.size() == payloads.size(),
            "there must be a length and a count for each payload");
    for (const std::int64_t n : num_nonzero) REQUIRE(n >= 0 && n <= num_parameters, "a count must be from 0 to d");
    const std::vector<Payload> each = views(payloads);
    return decoded(payloads.size(), num_parameters, threads, [&](std::size_t item, Subsets& subsets, float* row) {
        return decode_qsgd(each[item], payload_bits[item], num_parameters, num_nonzero[item], subsets, row);
    });
}

void require_subset(std::int64_t num_positions, std::int64_t num_kept) {
    REQUIRE(num_positions >= 0 && num_positions < (std::int64_t{1} << 32), "num_positions must be from 0 to 2^32 - 1");
    REQUIRE(num_kept >= 0 && num_kept <= num_positions, "num_kept must be from 0 to num_positions");
}

std::int64_t index_bits(std::int64_t num_positions, std::int64_t num_kept) {
    require_subset(num_positions, num_kept);
    std::int64_t found = 0;
    for_each_update(1, 1, [&](std::size_t, Subsets& subsets) { found = subsets.index_bits(num_positions, num_kept); });
    return found;
}

nb::bytes rank(Chosen chosen) {
    require_subset(static_cast<std::int64_t>(chosen.shape(0)), 0);
    Number number;
    for_each_update(1, 1, [&](std::size_t, Subsets& subsets) {
        number = subsets.rank(chosen.data(), static_cast<std::int64_t>(chosen.shape(0)));
    });
    std::string bytes;
    for (const Word word : number)
        for (int shift = 0; shift < 64; shift += 8) bytes.push_back(static_cast<char>(word >> shift));
    return nb::bytes(bytes.data(), bytes.size());
}

nb::object unrank(nb::bytes number, std::int64_t num_kept, std::int64_t num_positions) {
    require_subset(num_positions, num_kept);
    const auto* bytes = static_cast<const std::uint8_t*>(number.data());
    Number whole((number.size() + 7) / 8);
    for (std::size_t i = 0; i < number.size(); ++i) whole[i / 8] |= static_cast<Word>(bytes[i]) << i % 8 * 8;
    trim(whole);
    auto chosen = std::make_unique<std::uint8_t[]>(std::max<std::size_t>(static_cast<std::size_t>(num_positions), 1));
    bool found = false;
    for_each_update(1, 1, [&](std::size_t, Subsets& subsets) {
        found = subsets.unrank(std::move(whole), num_kept, num_positions, chosen.get());
    });
    if (!found) return nb::none();
    std::uint8_t* marks = chosen.release();
    const nb::capsule owner(marks, [](void* p) noexcept { delete[] static_cast<std::uint8_t*>(p); });
    return nb::cast(
        nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(marks, {static_cast<std::size_t>(num_positions)}, owner));
}

}  // namespace

void bind_codec(nb::module_& m) {
    m.def("index_bits", &index_bits, nb::arg("num_positions"), nb::arg("num_kept"),
          "Return the bits of one index set.");
    m.def("rank", &rank, nb::arg("chosen").noconvert(), "Return the number of a set, the lowest byte first.");
    m.def("unrank", &unrank, nb::arg("number"), nb::arg("num_kept"), nb::arg("num_positions"),
          "Return which positions are in the set with this number, or None.");
    m.def("sparse_encode", &sparse_encode, nb::arg("updates"), nb::arg("num_kept"), nb::arg("num_levels"),
          nb::arg("element_bits"), nb::arg("draws"), nb::arg("threads"), "Return the payload of every update.");
    m.def("sparse_decode", &sparse_decode, nb::arg("payloads"), nb::arg("num_kept"), nb::arg("num_parameters"),
          nb::arg("num_levels"), nb::arg("element_bits"), nb::arg("threads"),
          "Return the updates [r d] and what is wrong with each payload.");
    m.def("dead_zone_least_bits", &least_bits, nb::arg("num_parameters"), "Return the length of the code of zeros.");
    m.def("dead_zone_encode", &dead_zone_encode, nb::arg("updates"), nb::arg("whole_bits"), nb::arg("draws"),
          nb::arg("threads"), "Return the payload of every update and its bits; no bits: nothing fits.");
    m.def("dead_zone_decode", &dead_zone_decode, nb::arg("payloads"), nb::arg("payload_bits"),
          nb::arg("num_parameters"), nb::arg("threads"),
          "Return the updates [r d] and what is wrong with each payload.");
    m.def("qsgd_encode", &qsgd_encode, nb::arg("updates"), nb::arg("budgets"), nb::arg("num_levels"), nb::arg("draws"),
          nb::arg("threads"), "Return the payload of every update and its bits.");
    m.def("qsgd_decode", &qsgd_decode, nb::arg("payloads"), nb::arg("payload_bits"), nb::arg("num_nonzero"),
          nb::arg("num_parameters"), nb::arg("threads"),
          "Return the updates [r d] and what is wrong with each payload.");
}
