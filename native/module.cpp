// The Python side: checks everything, then hands jobs out to threads. See fedtide/learning/native.py for the callers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <vector>

#include "bind_codec.h"
#include "kernel.h"
#include "require.h"

namespace nb = nanobind;
using namespace fedtide;

void bind_schedule(nb::module_&);
void bind_columns(nb::module_& m);

namespace {

template <class T, std::size_t N>
using Array = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Images = nb::ndarray<nb::ro, nb::ndim<4>, nb::c_contig, nb::device::cpu>;  // of float32 or uint8
using LayerTuple = std::tuple<int, int, int, int, double>;  // kind, size, kernel, padding, p

struct Path {
    const Kernel* kernel;
    bool supported;
};

// Fastest first.
std::vector<Path> paths() {
    std::vector<Path> found;
#if defined(FEDTIDE_X86)
    __builtin_cpu_init();
    const bool fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    found.push_back({&avx512::kernel, fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")});
    found.push_back({&avx2::kernel, fma});
#endif
    found.push_back({&baseline::kernel, true});
    return found;
}

std::vector<std::string> isas() {
    std::vector<std::string> names;
    for (const Path& path : paths())
        if (path.supported) names.emplace_back(path.kernel->name);
    return names;
}

const Kernel& select(const std::string& isa) {
    std::string supported;
    for (const Path& path : paths()) {
        if (!path.supported) continue;
        if (isa.empty() || isa == path.kernel->name) return *path.kernel;
        supported += (supported.empty() ? "" : ", ") + std::string(path.kernel->name);
    }
    throw std::invalid_argument("FEDTIDE_ISA is \"" + isa + "\", but this machine and build offer only: " + supported);
}

template <class A>
void require_aligned(const A& array, const char* name) {
    REQUIRE(reinterpret_cast<std::uintptr_t>(array.data()) % sizeof(typename A::Scalar) == 0,
            std::string(name) + " is not aligned in memory; pass a copy");
}

void require_finite(const float* values, std::int64_t count, const char* name) {
    for (std::int64_t i = 0; i < count; ++i)
        REQUIRE(std::isfinite(values[i]), std::string(name) + " holds " + std::to_string(values[i]) + " at flat position " +
                                              std::to_string(i));
}

std::unique_ptr<Compiled> compiled(const std::vector<LayerTuple>& layers, const Images& images, const Kernel& kernel,
                                   std::int64_t longest_batch, bool steers, bool fast) {
    std::vector<Layer> plain;
    for (const auto& [kind, size, kernel_size, padding, p] : layers) {
        REQUIRE(kind >= 0 && kind <= static_cast<int>(Kind::linear), "unknown kind of layer: " + std::to_string(kind));
        plain.push_back({static_cast<Kind>(kind), size, kernel_size, padding, p});
    }
    for (std::size_t axis = 1; axis < 4; ++axis)
        REQUIRE(images.shape(axis) < (std::size_t{1} << 30), "images are too large");
    return compile(plain, static_cast<int>(images.shape(1)), static_cast<int>(images.shape(2)),
                   static_cast<int>(images.shape(3)), kernel.lanes, longest_batch, steers, fast);
}

// Images of float32 come without values, images of bytes with what each byte of each channel stands for.
Data checked_data(const Images& images, const Array<std::uint8_t, 1>& labels, const Array<float, 2>& values) {
    REQUIRE(images.shape(0) == labels.shape(0), std::to_string(images.shape(0)) + " images but " +
                                                    std::to_string(labels.shape(0)) + " labels");
    if (images.dtype() == nb::dtype<float>()) {
        REQUIRE(reinterpret_cast<std::uintptr_t>(images.data()) % sizeof(float) == 0,
                "images is not aligned in memory; pass a copy");
        REQUIRE(!values.is_valid(), "values are for images of bytes, and these are float32");
        return {static_cast<const float*>(images.data()), nullptr, nullptr, labels.data()};
    }
    if (images.dtype() != nb::dtype<std::uint8_t>()) throw nb::type_error("images must be float32 or uint8");
    REQUIRE(values.is_valid(), "images are bytes: values must say what they stand for");
    REQUIRE(values.shape(0) == images.shape(1) && values.shape(1) == 256,
            "values are [" + std::to_string(values.shape(0)) + " " + std::to_string(values.shape(1)) + "]; images of " +
                std::to_string(images.shape(1)) + " channels need [" + std::to_string(images.shape(1)) + " 256]");
    require_aligned(values, "values");
    require_finite(values.data(), static_cast<std::int64_t>(values.size()), "values");
    return {nullptr, static_cast<const std::uint8_t*>(images.data()), values.data(), labels.data()};
}

struct Free {
    void operator()(float* p) const { std::free(p); }
};
using Memory = std::unique_ptr<float[], Free>;

// Zeroed: the padding of most buffers is written by nobody and must read as zero. By memset: the allocation holds floats and
// int32 in places of their own (network.h, ints), and to write floats everywhere would make all of them floats.
Memory make_arena(const Plan& plan) {
    const std::size_t bytes = (static_cast<std::size_t>(plan.arena.size) * sizeof(float) + 4095) / 4096 * 4096;
    void* p = std::aligned_alloc(4096, bytes);
    if (!p) throw std::bad_alloc();
    std::memset(p, 0, bytes);
    return Memory(static_cast<float*>(p));
}

constexpr auto look_every = std::chrono::milliseconds(100);

// Ends a call when Python has something to say: the calling thread looks for signals now and then, as Ctrl-C waits for
// somebody to look; the others see what it found. Python's own exception is then pending in the calling thread.
class Signals final : public Halt {
   public:
    bool asked() override {
        if (found_.load(std::memory_order_relaxed)) return true;
        if (std::this_thread::get_id() != caller_ || std::chrono::steady_clock::now() < next_) return false;
        return look();
    }

    bool look() {
        const nb::gil_scoped_acquire acquire;
        if (PyErr_CheckSignals() != 0) found_ = true;
        next_ = std::chrono::steady_clock::now() + look_every;
        return found_;
    }

    // With the lock of the interpreter held again.
    void raise() const {
        if (found_) throw nb::python_error();
    }

   private:
    std::atomic<bool> found_{false};
    const std::thread::id caller_ = std::this_thread::get_id();
    std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + look_every;
};

// Calls work(item, arena) for every item, on up to `threads` threads, after prepare(arena) on each; the items are handed out
// in order as threads come free, and no result depends on who did which. Ends early if it is halted.
template <class Prepare, class Work>
void run_jobs(const Plan& plan, std::int64_t items, int threads, Signals& signals, Prepare prepare, Work work) {
    const int used = static_cast<int>(std::clamp<std::int64_t>(items, 1, std::max(threads, 1)));
    std::atomic<std::int64_t> next{0};
    std::vector<Memory> arenas;
    for (int i = 0; i < used; ++i) arenas.push_back(make_arena(plan));
    auto loop = [&](float* arena) {
        prepare(arena);
        for (std::int64_t item = next++; item < items && !signals.asked(); item = next++) work(item, arena);
    };
    std::mutex mutex;
    std::condition_variable ended;
    int at_work = 0;
    std::vector<std::thread> others;
    others.reserve(static_cast<std::size_t>(used));  // so that nothing but starting a thread can fail below
    try {
        for (int i = 1; i < used; ++i) {
            others.emplace_back([&, arena = arenas[static_cast<std::size_t>(i)].get()] {
                loop(arena);
                const std::lock_guard<std::mutex> lock(mutex);
                --at_work;
                ended.notify_one();
            });
            const std::lock_guard<std::mutex> lock(mutex);
            ++at_work;
        }
    } catch (const std::system_error&) {  // fewer threads than wished do as well
    }
    loop(arenas[0].get());
    while (true) {  // the last to end may take long: look for signals meanwhile
        {
            std::unique_lock<std::mutex> lock(mutex);
            if (ended.wait_for(lock, look_every, [&] { return at_work == 0; })) break;
        }
        signals.asked();
    }
    for (std::thread& thread : others) thread.join();
}

void require_finite_images(const std::vector<std::int64_t>& bad) {
    for (const std::int64_t sample : bad)
        REQUIRE(sample == all_finite, "image " + std::to_string(sample) + " holds NaN or infinity");
}

nb::object train(const std::vector<LayerTuple>& layers, Images images, Array<std::uint8_t, 1> labels,
                 Array<float, 2> values, Array<float, 2> start, Array<double, 1> learning_rate, Array<std::uint64_t, 1> keys,
                 Array<std::int64_t, 1> visited, Array<std::int64_t, 1> visited_start, Array<std::int64_t, 1> bounds,
                 Array<std::int64_t, 1> bounds_start, double proximal, double momentum, Array<float, 2> correction, int threads,
                 const std::string& isa, bool fast) {
    const Kernel& kernel = select(isa);
    const std::size_t jobs = start.shape(0);
    const Data data = checked_data(images, labels, values);
    require_aligned(start, "start");
    require_aligned(learning_rate, "learning_rate");
    require_aligned(keys, "keys");
    require_aligned(visited, "visited");
    require_aligned(visited_start, "visited_start");
    require_aligned(bounds, "bounds");
    require_aligned(bounds_start, "bounds_start");
    REQUIRE(learning_rate.shape(0) == jobs && keys.shape(0) == jobs && visited_start.shape(0) == jobs + 1 &&
                bounds_start.shape(0) == jobs + 1,
            "start, learning_rate, keys, visited_start and bounds_start do not speak of the same number of jobs");
    REQUIRE(threads >= 1, "threads must be at least 1, not " + std::to_string(threads));
    REQUIRE(std::isfinite(proximal) && proximal >= 0, "proximal must be finite and not negative");
    REQUIRE(momentum >= 0 && momentum < 1, "momentum must be at least 0 and below 1");
    if (correction.is_valid()) {
        require_aligned(correction, "correction");
        REQUIRE(correction.shape(0) == jobs && correction.shape(1) == start.shape(1), "correction is not shaped as start is");
    }

    std::int64_t longest = 1;
    const auto total_visited = static_cast<std::int64_t>(visited.shape(0));
    const auto total_bounds = static_cast<std::int64_t>(bounds.shape(0));
    Signals signals;
    std::vector<Job> list(jobs);
    for (std::size_t j = 0; j < jobs; ++j) {
        const std::string name = "job " + std::to_string(j) + ": ";
        const std::int64_t first = visited_start.data()[j], last = visited_start.data()[j + 1];
        const std::int64_t low = bounds_start.data()[j], high = bounds_start.data()[j + 1];
        REQUIRE(0 <= first && first <= last && last <= total_visited, name + "visited_start leaves the visited samples");
        REQUIRE(0 <= low && low < high && high <= total_bounds, name + "bounds_start leaves the bounds");
        const std::int64_t* bound = bounds.data() + low;
        REQUIRE(bound[0] == 0 && bound[high - low - 1] == last - first, name + "bounds do not cover the visited samples");
        for (std::int64_t i = 0; i + 1 < high - low; ++i) {
            REQUIRE(bound[i] < bound[i + 1], name + "an empty mini-batch");
            longest = std::max(longest, bound[i + 1] - bound[i]);
        }
        REQUIRE(std::isfinite(learning_rate.data()[j]), name + "the learning rate is not finite");
        list[j].learning_rate = static_cast<float>(learning_rate.data()[j]);
        list[j].proximal = static_cast<float>(proximal);
        list[j].momentum = static_cast<float>(momentum);
        list[j].key = keys.data()[j];
        list[j].visited = visited.data() + first;
        list[j].bounds = bound;
        list[j].steps = high - low - 1;
        list[j].halt = &signals;
    }
    REQUIRE(longest < INT32_MAX, "a mini-batch is too long");
    const std::unique_ptr<Compiled> network = compiled(layers, images, kernel, longest, momentum > 0 || correction.is_valid(), fast);
    const Plan& plan = network->plan;
    const auto d = static_cast<std::size_t>(plan.num_parameters);
    REQUIRE(start.shape(1) == d, "start has " + std::to_string(start.shape(1)) + " parameters per job, the model has " +
                                     std::to_string(d));
    for (std::int64_t i = 0; i < total_visited; ++i) {
        const std::int64_t sample = visited.data()[i];
        REQUIRE(sample >= 0 && sample < static_cast<std::int64_t>(images.shape(0)),
                "sample " + std::to_string(sample) + " is out of range: there are " + std::to_string(images.shape(0)));
        REQUIRE(labels.data()[sample] < plan.num_labels,
                "sample " + std::to_string(sample) + " has label " + std::to_string(labels.data()[sample]) +
                    ", but the model gives " + std::to_string(plan.num_labels) + " logits");
    }
    require_finite(start.data(), static_cast<std::int64_t>(jobs * d), "start");
    if (correction.is_valid()) require_finite(correction.data(), static_cast<std::int64_t>(jobs * d), "correction");

    auto owned = std::make_unique<float[]>(std::max<std::size_t>(jobs * d, 1));
    for (std::size_t j = 0; j < jobs; ++j) {
        list[j].start = start.data() + j * d;
        list[j].update = owned.get() + j * d;
        list[j].correction = correction.is_valid() ? correction.data() + j * d : nullptr;
    }
    std::vector<std::int64_t> bad(jobs, all_finite);
    {
        const nb::gil_scoped_release release;
        std::vector<std::size_t> order(jobs);  // the longest first, so that threads end together
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            return list[a].bounds[list[a].steps] > list[b].bounds[list[b].steps];
        });
        if (jobs > 0)
            run_jobs(
                plan, static_cast<std::int64_t>(jobs), threads, signals, [](float*) {},
                [&](std::int64_t item, float* arena) {
                    const std::size_t job = order[static_cast<std::size_t>(item)];
                    bad[job] = kernel.train(plan, data, list[job], arena);
                });
    }
    signals.raise();
    require_finite_images(bad);
    float* updates = owned.release();
    const nb::capsule owner(updates, [](void* p) noexcept { delete[] static_cast<float*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, float, nb::ndim<2>>(updates, {jobs, d}, owner));
}

constexpr std::int64_t score_chunk = 64;  // losses are summed within chunks, then over them: the sum's bits depend on it

std::tuple<std::int64_t, double> evaluate(const std::vector<LayerTuple>& layers, Images images,
                                          Array<std::uint8_t, 1> labels, Array<float, 2> values, Array<float, 1> model,
                                          int threads, const std::string& isa, bool fast) {
    const Kernel& kernel = select(isa);
    const Data data = checked_data(images, labels, values);
    require_aligned(model, "model");
    REQUIRE(threads >= 1, "threads must be at least 1, not " + std::to_string(threads));
    const auto count = static_cast<std::int64_t>(images.shape(0));
    const std::unique_ptr<Compiled> network = compiled(layers, images, kernel, score_chunk, false, fast);
    const Plan& plan = network->plan;
    REQUIRE(static_cast<std::int64_t>(model.shape(0)) == plan.num_parameters,
            "the vector has " + std::to_string(model.shape(0)) + " parameters, the model has " +
                std::to_string(plan.num_parameters));
    require_finite(model.data(), plan.num_parameters, "the model");
    for (std::int64_t i = 0; i < count; ++i)
        REQUIRE(labels.data()[i] < plan.num_labels, "sample " + std::to_string(i) + " has label " +
                                                        std::to_string(labels.data()[i]) + ", but the model gives " +
                                                        std::to_string(plan.num_labels) + " logits");
    const std::int64_t chunk = score_chunk, chunks = (count + chunk - 1) / chunk;
    std::vector<Sum> sums(static_cast<std::size_t>(chunks));
    std::vector<std::int64_t> bad(static_cast<std::size_t>(chunks), all_finite);
    Signals signals;
    {
        const nb::gil_scoped_release release;
        run_jobs(
            plan, chunks, threads, signals, [&](float* arena) { pack(plan, model.data(), arena + plan.arena.theta); },
            [&](std::int64_t item, float* arena) {
                const std::int64_t first = item * chunk;
                const auto slot = static_cast<std::size_t>(item);
                const int size = static_cast<int>(std::min(chunk, count - first));
                bad[slot] = kernel.evaluate(plan, data, first, size, arena, &sums[slot]);
            });
    }
    signals.raise();
    require_finite_images(bad);
    Sum total = {0, 0.0};  // in order of the samples, whoever scored them
    for (const Sum& sum : sums) {
        total.correct += sum.correct;
        total.loss += sum.loss;
    }
    return {total.correct, total.loss};
}

}  // namespace

NB_MODULE(_native, m) {
    m.doc() = "The native training kernel of fedtide; use fedtide.learning.native.";
    m.def("isas", &isas, "Instruction paths that this machine and build offer, fastest first.");
    m.def("train", &train, nb::arg("layers"), nb::arg("images").noconvert(), nb::arg("labels").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("start").noconvert(), nb::arg("learning_rate").noconvert(),
          nb::arg("keys").noconvert(), nb::arg("visited").noconvert(), nb::arg("visited_start").noconvert(),
          nb::arg("bounds").noconvert(), nb::arg("bounds_start").noconvert(), nb::arg("proximal"), nb::arg("momentum"),
          nb::arg("correction").noconvert().none(), nb::arg("threads"), nb::arg("isa"), nb::arg("fast") = false,
          "Train every job and return the updates [r d].");
    m.def("evaluate", &evaluate, nb::arg("layers"), nb::arg("images").noconvert(), nb::arg("labels").noconvert(),
          nb::arg("values").noconvert().none(), nb::arg("model").noconvert(), nb::arg("threads"), nb::arg("isa"), nb::arg("fast") = false,
          "Return how many samples the model labels right and the sum of its losses.");
    bind_schedule(m);
    bind_columns(m);
    bind_codec(m);
}
