// What every instruction path offers: whole local trainings and scores, single-threaded, on an arena the caller owns.
#pragma once

#include <cstdint>

#include "plan.h"

namespace fedtide {

// Images are float32, or bytes with what each byte of each channel stands for: they become numbers as they are read.
struct Data {
    const float* images;         // [n image_size], or null
    const std::uint8_t* bytes;   // [n image_size], or null
    const float* values;         // of bytes: [channels 256], finite
    const std::uint8_t* labels;  // [n]
};

// Asked between parts of a mini-batch: is this call to end early? Its results are then thrown away.
struct Halt {
    virtual bool asked() = 0;

protected:
    ~Halt() = default;
};

struct Job {
    const float* start;  // [num_parameters]
    float* update;       // [num_parameters]
    const float* correction;  // added to the gradient of every step [num_parameters], or null
    float learning_rate, proximal, momentum;
    std::uint64_t key;
    const std::int64_t* visited;  // samples in the order they are used
    const std::int64_t* bounds;   // [steps + 1] of the mini-batches, within visited
    std::int64_t steps;
    Halt* halt;
};

struct Sum {
    std::int64_t correct;
    double loss;
};

constexpr std::int64_t all_finite = -1;

// The functions return all_finite, or the number of a sample whose image holds NaN or infinity. A training that is halted
// writes no update.
struct Kernel {
    const char* name;
    int lanes;
    std::int64_t (*train)(const Plan&, const Data&, const Job&, float* arena);
    // Scores samples first .. first + count with the packed parameters at arena.theta.
    std::int64_t (*evaluate)(const Plan&, const Data&, std::int64_t first, int count, float* arena, Sum* sum);
};

namespace baseline {
extern const Kernel kernel;
}
#if defined(FEDTIDE_X86)
namespace avx2 {
extern const Kernel kernel;
}
namespace avx512 {
extern const Kernel kernel;
}
#endif

}  // namespace fedtide
