#include "plan.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace fedtide {
namespace {

constexpr std::int64_t max_size = std::int64_t{1} << 30;  // floats of any one buffer: keeps 32-bit offsets safe
constexpr int tail = 64;      // floats after every buffer, so that vectors may run over its end
constexpr std::int64_t min_batch = 8, max_batch = 64;
constexpr std::int64_t max_kept = 128 << 10; // floats that the samples of a batch keep: more would leave the caches

std::int64_t round_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

[[noreturn]] void fail(std::size_t layer, const std::string& reason) {
    throw std::invalid_argument("layer " + std::to_string(layer) + ": " + reason);
}

int checked(std::int64_t size, std::size_t layer) {
    if (size > max_size) fail(layer, "too large for the native kernel, use the torch trainer");
    return static_cast<int>(size);
}

struct Allocator {
    std::int64_t size = 0;
    std::int64_t take(std::int64_t floats) {
        const std::int64_t place = size;
        size += round_up(floats + tail, 16);
        return place;
    }
};

void set_dropout(Stage& stage, const Layer& layer, std::size_t number) {
    if (!(layer.p >= 0 && layer.p < 1)) fail(number, "p must lie in [0, 1)");
    stage.layer = static_cast<int>(number);
    stage.drops = layer.p > 0;
    stage.threshold = static_cast<std::uint32_t>(std::min(std::floor(layer.p * 4294967296.0), 4294967295.0));
    stage.keep_scale = static_cast<float>(1 / (1 - layer.p));
}

void choose_patch_layout(Stage& stage, int lanes) {
    const int channels = stage.in_channels, row = stage.kernel * channels;
    int width = lanes;
    if (channels <= 4) {  // a patch row is short: keep it dense
        while (width > 4 && width / 2 >= row) width /= 2;
        stage.channel_stride = channels;
    } else {  // pixels start at vector boundaries: loads never cross cache lines, stores forward to loads
        while (width > 4 && width / 2 >= channels) width /= 2;
        stage.channel_stride = static_cast<int>(round_up(channels, width));
    }
    stage.patch_lanes = width;
    stage.patch_vectors = static_cast<int>(round_up(stage.kernel * stage.channel_stride, width) / width);
    stage.weight_row = stage.patch_vectors * width;
}

void plan_conv(Compiled& out, Stage& s, const Layer& layer, std::size_t number, int lanes) {
    s.kernel = layer.kernel;
    s.padding = layer.padding;
    if (layer.size < 1 || layer.kernel < 1 || layer.padding < 0) fail(number, "sizes must be positive");
    if (layer.kernel > 4096 || layer.padding > 4096 || layer.size > (1 << 20)) fail(number, "too large");
    s.padded_height = s.in_height + 2 * s.padding;
    s.padded_width = s.in_width + 2 * s.padding;
    const int height = s.padded_height - s.kernel + 1, width = s.padded_width - s.kernel + 1;
    if (height < 1 || width < 1) fail(number, "the image is smaller than the kernel");
    if (height < s.pool || width < s.pool) fail(number + 1, "the image is smaller than the pool block");
    s.out_channels = layer.size;
    s.out_height = height / s.pool;
    s.out_width = width / s.pool;
    choose_patch_layout(s, lanes);
    const int q = s.pool, k = s.kernel;
    s.copy_rows = (q * s.out_height + k - 1 + q - 1) / q;
    s.copy_plane = checked(std::int64_t{s.copy_rows} * s.out_width, number);
    s.copy_block = checked(std::int64_t{s.copy_plane} * s.in_channels + tail, number);
    checked(std::int64_t{s.copy_block} * (k + q - 1) * q, number);
    checked(std::int64_t{s.padded_height} * s.padded_width * s.channel_stride, number);
    checked(std::int64_t{s.weight_row} * k * s.out_channels, number);

    for (int dy = 0; dy < q; ++dy)
        for (int dx = 0; dx < q; ++dx) s.phase_offset[dy * q + dx] = (dy * s.padded_width + dx) * s.channel_stride;
    const std::int64_t positions = std::int64_t{s.out_height} * s.out_width;
    s.out_plane = checked(round_up(positions, lanes), number);
    checked(std::int64_t{s.out_plane} * s.out_channels, number);
    auto base = std::make_unique<std::int32_t[]>(static_cast<std::size_t>(s.out_plane));
    for (int j = 0; j < s.out_plane; ++j)
        base[j] = j < positions
                      ? (j / s.out_width * q * s.padded_width + j % s.out_width * q) * s.channel_stride
                      : INT32_MIN / 2;
    auto starts = std::make_unique<std::int32_t[]>(static_cast<std::size_t>(k + q - 1));
    for (int y = 0; y < k + q - 1; ++y) starts[y] = y % q * s.copy_block + y / q * s.out_width;
    s.row_start = starts.get();
    s.patch_base = base.get();
    out.tables.push_back(std::move(starts));
    out.tables.push_back(std::move(base));
}

}  // namespace

std::unique_ptr<Compiled> compile(const std::vector<Layer>& layers, int channels, int height, int width, int lanes,
                                  std::int64_t longest_batch, bool steers, bool fast) {
    auto out = std::make_unique<Compiled>();
    Plan& plan = out->plan;
    plan = Plan{};
    if (channels < 1 || height < 1 || width < 1) throw std::invalid_argument("the input shape must be positive");
    if (layers.size() > 4096) throw std::invalid_argument("too many layers");
    plan.lanes = lanes;
    plan.image_size = checked(std::int64_t{channels} * height * width, 0);
    plan.image_plane = checked(round_up(std::int64_t{height} * width, lanes), 0);
    checked(std::int64_t{channels} * plan.image_plane, 0);

    Allocator packed, kept, arena;
    std::int64_t copies = 0, patches = 0, widest = 0, planes = 0, list = 0, list_channels = 0, tiles = 0, last = 0, lists = 0;
    bool flat = false, parameters_before = false;
    int features = 0;
    int c = channels, h = height, w = width, plane = plan.image_plane;

    for (std::size_t i = 0; i < layers.size(); ++i) {
        const Layer& layer = layers[i];
        Stage s{};
        s.kind = layer.kind;
        s.layer = static_cast<int>(i);
        s.pool = 1;
        s.keep_scale = 1;
        s.in_channels = s.out_channels = c;
        s.in_height = s.out_height = h;
        s.in_width = s.out_width = w;
        s.in_plane = s.out_plane = plane;
        s.needs_input_gradient = parameters_before;
        if (flat && (layer.kind == Kind::conv || layer.kind == Kind::pool || layer.kind == Kind::channel_dropout))
            fail(i, "needs [channels height width], not a vector");
        switch (layer.kind) {
            case Kind::conv: {
                const std::size_t number = i;
                if (i + 1 < layers.size() && layers[i + 1].kind == Kind::channel_dropout) {
                    set_dropout(s, layers[i + 1], i + 1);
                    ++i;
                }
                // ReLU and pool commute: both orders choose the same element and pass the same gradient.
                for (int pooled = 0, rectified = 0; i + 1 < layers.size(); ++i) {
                    const Layer& next = layers[i + 1];
                    if (next.kind == Kind::relu && !rectified) {
                        rectified = s.relu = true;
                    } else if (next.kind == Kind::pool && !pooled && next.size >= 1 && next.size <= max_fused_pool) {
                        pooled = s.pool = next.size;
                    } else {
                        break;
                    }
                }
                plan_conv(*out, s, layer, number, lanes);
                s.has_parameters = true;
                s.weight = packed.take(std::int64_t{s.out_channels} * s.kernel * s.weight_row);
                s.bias = packed.take(s.out_channels);
                const std::int64_t input = std::int64_t{s.padded_height} * s.padded_width * s.channel_stride;
                s.kept_input = kept.take(input + s.weight_row);
                s.kept_choice = kept.take(std::int64_t{s.out_channels} * s.out_plane);
                s.kept_active = kept.take(s.out_channels + 1);
                copies = std::max(copies, std::int64_t{s.copy_block} * (s.kernel + s.pool - 1) * s.pool);
                s.padded = arena.take(s.padding > 0 ? std::int64_t{2} * s.padded_height * s.padded_width : 0);
                patches = std::max(patches, input + s.weight_row);
                list = std::max(list, std::int64_t{s.out_channels} * s.out_plane);
                list_channels = std::max<std::int64_t>(list_channels, s.out_channels);
                s.out_stride = static_cast<int>(round_up(s.out_channels, lanes));
                s.winograd = fast && s.kernel == 3 && s.pool == 2 && !s.drops &&
                             std::min(s.in_channels, s.out_channels) >= min_winograd_channels;
                last = std::max<std::int64_t>(last, checked(std::int64_t{s.out_plane} * s.out_stride, number));
                lists = std::max(lists, std::int64_t{s.out_plane} * s.pool * s.pool);
                if (s.winograd) {
                    s.transformed = arena.take(std::int64_t{16} * checked(std::int64_t{s.channel_stride} * s.out_stride, number));
                    tiles = std::max(tiles, std::int64_t{16} * checked(std::int64_t{s.out_height} * s.out_width * s.channel_stride, number));
                }
                plan.num_parameters +=
                    std::int64_t{s.out_channels} * (std::int64_t{s.in_channels} * s.kernel * s.kernel + 1);
                break;
            }
            case Kind::pool:
                s.pool = layer.size;
                if (s.pool < 1 || h < s.pool || w < s.pool) fail(i, "the image is smaller than the pool block");
                s.out_height = h / s.pool;
                s.out_width = w / s.pool;
                s.out_plane = static_cast<int>(round_up(std::int64_t{s.out_height} * s.out_width, lanes));
                s.kept_choice = kept.take(std::int64_t{c} * s.out_plane);
                break;
            case Kind::dropout:
            case Kind::channel_dropout:
                set_dropout(s, layer, i);
                [[fallthrough]];
            case Kind::relu:
                s.kept_factor = kept.take(std::int64_t{c} * plane);
                break;
            case Kind::linear:
                if (layer.size < 1 || layer.size > max_size) fail(i, "needs at least one output");
                if (!flat) {
                    plan.first_linear = static_cast<int>(out->stages.size());
                    plan.num_features = checked(std::int64_t{c} * h * w, i);
                    plan.feature_stride = static_cast<int>(round_up(plan.num_features, lanes));
                    plan.spatial_gradient = parameters_before;
                    features = plan.num_features;
                    flat = true;
                }
                s.inputs = features;
                s.input_stride = static_cast<int>(round_up(features, lanes));
                s.outputs = features = layer.size;
                s.output_stride = static_cast<int>(round_up(layer.size, lanes));
                s.out_channels = s.out_height = 1;
                s.out_width = layer.size;
                s.out_plane = s.output_stride;
                checked(std::int64_t{s.outputs} * s.input_stride, i);
                s.has_parameters = true;
                s.weight = packed.take(std::int64_t{s.outputs} * s.input_stride);
                s.bias = packed.take(s.output_stride);
                plan.num_parameters += std::int64_t{s.outputs} * (s.inputs + std::int64_t{1});
                break;
        }
        parameters_before = parameters_before || s.has_parameters;
        c = s.out_channels;
        h = s.out_height;
        w = s.out_width;
        plane = s.out_plane;
        s.stride = checked(std::int64_t{c} * plane, i);
        out->stages.push_back(s);
        if (flat) widest = std::max(widest, std::int64_t{s.stride});
        planes = std::max({planes, std::int64_t{s.stride}, std::int64_t{s.in_channels} * s.in_plane});
    }
    if (!flat) throw std::invalid_argument("the model needs a linear layer");
    plan.num_labels = features;
    plan.kept_stride = kept.size;
    plan.batch = static_cast<int>(std::clamp<std::int64_t>(
        longest_batch, 1, std::clamp(max_kept / std::max<std::int64_t>(plan.kept_stride, 1), min_batch, max_batch)));
    const std::int64_t slopes = std::max(widest, std::int64_t{plan.feature_stride}) * plan.batch;

    for (Stage& s : out->stages) s.value = arena.take(std::int64_t{s.stride} *
        (&s - out->stages.data() >= plan.first_linear ? plan.batch : 1));
    plan.packed_size = round_up(packed.size, lanes);
    plan.arena.theta = arena.take(plan.packed_size);
    plan.arena.start = arena.take(plan.packed_size);
    plan.arena.gradient = arena.take(plan.packed_size);
    plan.arena.image = arena.take(std::int64_t{channels} * plan.image_plane);
    plan.arena.features = arena.take(std::int64_t{plan.feature_stride} * plan.batch);
    plan.arena.kept = arena.take(plan.kept_stride * plan.batch);
    plan.arena.copies = arena.take(copies);
    plan.arena.patches = arena.take(patches);
    plan.arena.slopes[0] = arena.take(slopes);
    plan.arena.slopes[1] = arena.take(slopes);
    plan.arena.planes[0] = arena.take(planes);
    plan.arena.planes[1] = arena.take(planes);
    plan.arena.list_offset = arena.take(list);
    plan.arena.list_value = arena.take(list);
    plan.arena.list_begin = arena.take(list_channels);
    plan.arena.list_end = arena.take(list_channels);
    plan.arena.tiles = arena.take(tiles);
    plan.arena.products = arena.take(tiles > 0 ? max_products * lanes : 0);
    plan.arena.last_value = arena.take(fast ? last : 0);
    plan.arena.last_choice = arena.take(fast ? last : 0);
    plan.arena.place = arena.take(fast ? list_channels : 0);
    plan.arena.patch = arena.take(fast ? lists : 0);
    plan.arena.begin = arena.take(fast ? lists : 0);
    plan.fast = fast;
    plan.steers = steers;
    plan.arena.correction = arena.take(steers ? plan.packed_size : 0);
    plan.arena.velocity = arena.take(steers ? plan.packed_size : 0);
    plan.arena.size = arena.size;
    plan.num_stages = static_cast<int>(out->stages.size());
    plan.stages = out->stages.data();
    return out;
}

namespace {

// Calls visit(packed place, flat place, count) for every contiguous run of parameters. PyTorch orders a convolution
// [out in ky kx], the kernel [out ky kx in].
template <class Visit>
void walk(const Plan& plan, Visit visit) {
    std::int64_t flat = 0;
    for (int i = 0; i < plan.num_stages; ++i) {
        const Stage& s = plan.stages[i];
        if (s.kind == Kind::conv) {
            for (int o = 0; o < s.out_channels; ++o)
                for (int c = 0; c < s.in_channels; ++c)
                    for (int ky = 0; ky < s.kernel; ++ky)
                        for (int kx = 0; kx < s.kernel; ++kx)
                            visit(s.weight + (std::int64_t{o} * s.kernel + ky) * s.weight_row + kx * s.channel_stride + c,
                                  flat++, 1);
            visit(s.bias, flat, s.out_channels);
            flat += s.out_channels;
        } else if (s.kind == Kind::linear) {
            for (int o = 0; o < s.outputs; ++o, flat += s.inputs)
                visit(s.weight + std::int64_t{o} * s.input_stride, flat, s.inputs);
            visit(s.bias, flat, s.outputs);
            flat += s.outputs;
        }
    }
}

}  // namespace

void pack(const Plan& plan, const float* flat, float* packed) {
    std::fill_n(packed, plan.packed_size, 0.0f);
    walk(plan, [&](std::int64_t to, std::int64_t from, int count) { std::copy_n(flat + from, count, packed + to); });
}

void unpack_difference(const Plan& plan, const float* end, const float* start, float* difference) {
    walk(plan, [&](std::int64_t from, std::int64_t to, int count) {
        for (int i = 0; i < count; ++i) difference[to + i] = end[from + i] - start[to + i];
    });
}

}  // namespace fedtide
