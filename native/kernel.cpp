// One instruction path. CMake compiles this file once per path, with its flags and
//   FEDTIDE_PATH        namespace (avx512, avx2, baseline)
//   FEDTIDE_LANE_COUNT  floats per vector
//   FEDTIDE_REGISTERS   vector registers
// No standard library templates below: the linker would merge their instances across paths.
#include "kernel.h"

#include <math.h>

#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "profile.h"

namespace fedtide {
namespace FEDTIDE_PATH {
namespace {

// clang-format off: the order matters
#include "simd.h"
#include "philox.h"
#include "conv_forward.h"
#include "conv_backward.h"
#include "conv_gather.h"
#include "winograd.h"
#include "linear.h"
#include "elementwise.h"
#include "network.h"
// clang-format on

}  // namespace

extern const Kernel kernel = {FEDTIDE_NAME, FEDTIDE_LANE_COUNT, train, evaluate};

}  // namespace FEDTIDE_PATH
}  // namespace fedtide
