// What a network looks like to the kernel: stages, where their parameters and buffers lie. Built once per call by
// plan.cpp; the kernels only read it. Plain data throughout, because this header is also compiled with wider
// instruction sets: an inline function here could leak such code into the baseline path through the linker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fedtide {

enum class Kind : int { conv, pool, relu, dropout, channel_dropout, linear };

struct Layer {
    Kind kind;
    int size;     // outputs of conv and linear, side of a pool block
    int kernel;   // conv
    int padding;  // conv
    double p;     // dropout
};

// Pool blocks of up to 3 x 3 are computed in registers right after their convolution; see conv.h.
constexpr int max_fused_pool = 3;

// Winograd's algorithm pays from so many channels in and out on; see winograd.h.
constexpr int min_winograd_channels = 8;
constexpr int max_products = 16 * 24;  // vectors of products of a tile of registers

// A stage is one layer, or a convolution with the channel dropout, pool and ReLU that follow it.
// Spatial values are planes: channel c of a sample starts at c * plane (plane >= height * width).
struct Stage {
    Kind kind;
    int layer;  // number of the layer that draws dropout masks: part of the random counter
    int in_channels, in_height, in_width, in_plane;
    int out_channels, out_height, out_width, out_plane;
    bool needs_input_gradient;
    bool has_parameters;

    // Dropout (of the stage, or the channel dropout fused into a convolution).
    bool drops;
    std::uint32_t threshold;  // dropped if a random word is below it
    float keep_scale;         // 1 / (1 - p)

    // Pool: block side. Convolution: side of the fused pool block, 1 if none.
    int pool;

    // Convolution.
    int kernel, padding;
    bool relu;
    int padded_width, padded_height;  // of the input
    int channel_stride;               // floats per pixel of the channel-last input: the channels, rounded up to lanes
    int patch_lanes;                  // lanes of the vectors that walk over patches
    int patch_vectors;                // vectors per patch row (kernel * channel_stride floats)
    int weight_row;                   // floats per kernel row in the packed weights: patch_vectors * patch_lanes
    int copy_rows, copy_plane;        // of a shifted copy: rows, floats per channel
    int copy_block;                   // floats per (shift, row parity) block of the shifted copies
    const std::int32_t* row_start;    // [kernel + pool - 1] where a row of the padded input starts within the shifted copies
    const std::int32_t* patch_base;   // [out_plane] offset of a block's first patch; negative beyond the last block
    std::int32_t phase_offset[max_fused_pool * max_fused_pool];  // patch offset of each position in a block
    int out_stride;                   // output channels, rounded up to lanes
    bool winograd;                    // forward as in winograd.h
    std::int64_t transformed;         // winograd: the weights, transformed anew for every step

    // Linear.
    int inputs, input_stride, outputs, output_stride;

    // Places, in floats: parameters within the packed vector, values kept for the backward pass within a sample's record.
    std::int64_t weight, bias;
    std::int64_t kept_input;   // convolution: channel-last input
    std::int64_t kept_choice;  // convolution, pool: int32 offset of the chosen maximum, negative if without gradient
    std::int64_t kept_active;  // convolution with dropout: int32 count, then the channels that were not dropped
    std::int64_t kept_factor;  // ReLU, dropout: what each element was multiplied by
    std::int64_t value;        // the stage's output: spatial stages one sample, others [batch stride]
    int stride;                // of one sample in `value`, linear and later
    std::int64_t padded;       // convolution with padding: two planes of its input, padded
};

// Places of the buffers of one thread, in floats from its arena.
struct Arena {
    std::int64_t theta, start, gradient;  // packed parameters
    std::int64_t image;                   // the sample as planes
    std::int64_t features;                // [batch feature_stride] input of the first linear layer
    std::int64_t kept;                    // [batch kept_stride]
    std::int64_t copies;                  // shifted copies of one convolution input
    std::int64_t patches;                 // channel-last gradient of one convolution input
    std::int64_t slopes[2];               // gradients of the linear part, [batch stride]
    std::int64_t planes[2];               // gradients of the spatial part, one sample
    std::int64_t list_offset, list_value, list_begin, list_end;
    std::int64_t tiles, products;               // winograd.h, of one convolution
    std::int64_t last_value, last_choice;       // [position channel] outputs of one convolution or their gradients
    std::int64_t place, patch, begin;           // conv_gather.h: int32 for each channel, and for each list
    std::int64_t correction, velocity;  // packed parameters, of a plan that steers
    std::int64_t size;
};

struct Plan {
    int lanes;
    int batch;         // samples processed together; longer mini-batches accumulate, with the same bits
    int num_features;  // inputs of the first linear layer
    int feature_stride;
    int num_labels;
    int image_size, image_plane;
    std::int64_t num_parameters, packed_size, kept_stride;
    int num_stages, first_linear;
    bool spatial_gradient;  // is there a parameter before the first linear layer?
    bool steers;            // is there a correction or momentum?
    bool fast;              // convolutions by winograd.h and conv_gather.h where they can: fewer operations, other bits
    const Stage* stages;
    Arena arena;
};

// Owns the tables a Plan points to.
struct Compiled {
    Plan plan;
    std::vector<Stage> stages;
    std::vector<std::unique_ptr<std::int32_t[]>> tables;
};

// Raises std::invalid_argument if the layers do not fit the input. steers: room is made for a correction and momentum.
std::unique_ptr<Compiled> compile(const std::vector<Layer>& layers, int channels, int height, int width, int lanes,
                                  std::int64_t longest_batch, bool steers, bool fast);

// Between PyTorch's order and the packed one.
void pack(const Plan& plan, const float* flat, float* packed);
void unpack_difference(const Plan& plan, const float* packed_end, const float* flat_start, float* difference);

}  // namespace fedtide
