// The stages in sequence: spatial ones sample by sample, from the first linear layer on by mini-batch.
#pragma once

struct Run {
    const Plan& plan;
    float* arena;
    bool training;
    std::uint64_t key;
    std::uint32_t step;

    float* at(std::int64_t place) const { return arena + place; }
    float* kept(int sample) const { return at(plan.arena.kept) + sample * plan.kept_stride; }
};

// Places of the arena that hold int32 from the start and never anything else.
FEDTIDE_INLINE std::int32_t* ints(float* place) { return reinterpret_cast<std::int32_t*>(place); }

#define FEDTIDE_BY_LANES(lanes, call)         \
    do {                                      \
        if constexpr (W >= 16)                \
            if ((lanes) == 16) {              \
                constexpr int L = W >= 16 ? 16 : 4; \
                call;                         \
                break;                        \
            }                                 \
        if constexpr (W >= 8)                 \
            if ((lanes) == 8) {               \
                constexpr int L = W >= 8 ? 8 : 4; \
                call;                         \
                break;                        \
            }                                 \
        constexpr int L = 4;                  \
        call;                                 \
    } while (false)

// Turns an image of bytes into planes.
static void load_bytes(const Plan& plan, const std::uint8_t* image, const float* values, int channels, float* planes) {
    const int size = plan.image_size / channels;
    for (int c = 0; c < channels; ++c) {
        const std::uint8_t* from = image + std::int64_t{c} * size;
        const float* value = values + std::int64_t{c} * 256;
        float* to = planes + std::int64_t{c} * plan.image_plane;
#pragma GCC unroll 8
        for (int i = 0; i < size; ++i) to[i] = value[from[i]];
    }
}

// Copies an image into planes; false if a value is not finite.
static bool load_floats(const Plan& plan, const float* image, int channels, float* planes) {
    const int size = plan.image_size / channels;
    float check = 0;  // x * 0 is NaN unless x is finite
    F<W> checks = {};
    for (int c = 0; c < channels; ++c) {
        const float* from = image + std::int64_t{c} * size;
        float* to = planes + std::int64_t{c} * plan.image_plane;
        int i = 0;
        for (; i + W <= size; i += W) {
            const F<W> x = load<W>(from + i);
            checks += x * 0.0f;
            store<W>(to + i, x);
        }
        for (; i < size; ++i) {
            check += from[i] * 0.0f;
            to[i] = from[i];
        }
    }
    for (int i = 0; i < W; ++i) check += checks[i];
    return check == 0;
}

// Brings a sample into planes, whichever form it has; false if a value is not finite.
static bool load_image(const Plan& plan, const Data& data, std::int64_t sample, float* planes) {
    const int channels = plan.stages[0].in_channels;
    FEDTIDE_SECTION(image, "image to planes");
    if (data.images) return load_floats(plan, data.images + sample * plan.image_size, channels, planes);
    load_bytes(plan, data.bytes + sample * plan.image_size, data.values, channels, planes);
    return true;
}

static void run_winograd(const Run& run, const Stage& s, const float* in, int sample) {
    const Arena& arena = run.plan.arena;
    float *kept = run.kept(sample), *tiles = run.at(arena.tiles), *value = run.at(arena.last_value), *choice = run.at(arena.last_choice);
    {
        FEDTIDE_SECTION(last, "conv: input to channel-last");
        FEDTIDE_BY_LANES(s.patch_lanes, to_channel_last<L>(s, in, kept + s.kept_input));
    }
    {
        FEDTIDE_SECTION(tiles, "winograd: input");
        FEDTIDE_BY_LANES(s.patch_lanes, transform_input<L>(s, kept + s.kept_input, tiles));
    }
    {
        FEDTIDE_SECTION(products, "winograd: products, pool, ReLU");
        multiply_tiles(s, tiles, run.at(s.transformed), run.at(arena.theta + s.bias), run.at(arena.products), value, ints(choice));
    }
    FEDTIDE_SECTION(planes, "winograd: to planes");
    const int blocks = s.out_height * s.out_width;
    const auto row = [&](const float* table) { return [=, &s](int i) { return table + std::int64_t{i} * s.out_stride; }; };
    turn(blocks, s.out_channels, row(value), F<W>{}, run.at(s.value), s.out_plane);
    if (run.training) turn(blocks, s.out_channels, row(choice), no_choice(), kept + s.kept_choice, s.out_plane);
}

// What the forward pass of a new model needs first.
static void transform_weights(const Run& run) {
    FEDTIDE_SECTION(weights, "winograd: weights");
    for (int i = 0; i < run.plan.first_linear; ++i) {
        const Stage& s = run.plan.stages[i];
        if (s.winograd)
            FEDTIDE_BY_LANES(s.patch_lanes, transform_weights<L>(s, run.at(run.plan.arena.theta + s.weight), run.at(s.transformed)));
    }
}

static void run_conv(const Run& run, const Stage& s, const float* in, int sample, const Draw& draw) {
    float *kept = run.kept(sample), *out = run.at(s.value), *copies = run.at(run.plan.arena.copies);
    std::int32_t* active = ints(kept + s.kept_active);
    int count = 0;
    if (run.training && s.drops) {
        draw_mask(s, draw, s.out_channels, [&](int c, bool keep) {
            active[1 + count] = c;
            count += keep;
            if (!keep) std::memset(out + std::int64_t{c} * s.out_plane, 0, sizeof(float) * static_cast<std::size_t>(s.out_plane));
        });
    } else {
        for (; count < s.out_channels; ++count) active[1 + count] = count;
    }
    active[0] = count;
    if (s.winograd) return run_winograd(run, s, in, sample);
    {
        FEDTIDE_SECTION(copies, "conv: shifted copies");
        float* padded = run.at(s.padded);
        if (s.pool == 1) make_copies<1>(s, in, padded, copies);
        if (s.pool == 2) make_copies<2>(s, in, padded, copies);
        if (s.pool == 3) make_copies<3>(s, in, padded, copies);
    }
    {
        FEDTIDE_SECTION(forward, "conv: forward, pool, ReLU");
        const Forward f = {copies, run.at(run.plan.arena.theta + s.weight), run.at(run.plan.arena.theta + s.bias),
                           run.training && s.drops ? s.keep_scale : 1.0f, out,
                           run.training ? ints(kept + s.kept_choice) : nullptr};
        conv_forward(s, f, active + 1, count);
    }
    if (run.training) {
        FEDTIDE_SECTION(last, "conv: input to channel-last");
        FEDTIDE_BY_LANES(s.patch_lanes, to_channel_last<L>(s, in, kept + s.kept_input));
    }
}

// One stage that works on planes; `in` and the output are one sample.
static void run_planes(const Run& run, const Stage& s, const float* in, float* out, int sample, const Draw& draw) {
    float* kept = run.kept(sample);
    switch (s.kind) {
        case Kind::relu:
            return relu_forward(s, in, out, run.training ? kept + s.kept_factor : nullptr);
        case Kind::pool:
            return pool_forward(s, in, out, run.training ? ints(kept + s.kept_choice) : nullptr);
        case Kind::dropout:
        case Kind::channel_dropout:
            if (!run.training || !s.drops) return copy_planes(s, in, out);
            draw_factors(s, draw, kept + s.kept_factor);
            return multiply(s, in, kept + s.kept_factor, out);
        default:
            return run_conv(run, s, in, sample, draw);
    }
}

// Asks the caches for an image that is read soon: samples are visited in random order, which no processor foresees.
static void fetch_image(const Plan& plan, const Data& data, std::int64_t sample) {
    const char* image = data.images ? reinterpret_cast<const char*>(data.images + sample * plan.image_size)
                                    : reinterpret_cast<const char*>(data.bytes + sample * plan.image_size);
    const std::int64_t size = plan.image_size * static_cast<std::int64_t>(data.images ? sizeof(float) : 1);
    for (std::int64_t i = 0; i < size; i += 64) __builtin_prefetch(image + i);
}

// Fills row `sample` of the features with those of image `number`; false if it is not finite.
static bool forward_sample(const Run& run, const Data& data, std::int64_t number, int sample, std::uint32_t place_in_batch) {
    const Plan& plan = run.plan;
    const Draw draw = {run.key, run.step, place_in_batch};
    const float* value = run.at(plan.arena.image);
    if (!load_image(plan, data, number, run.at(plan.arena.image))) return false;
    for (int i = 0; i < plan.first_linear; ++i) {
        const Stage& s = plan.stages[i];
        run_planes(run, s, value, run.at(s.value), sample, draw);
        value = run.at(s.value);
    }
    const Stage& linear = plan.stages[plan.first_linear];  // flatten: planes without gaps
    const int size = linear.in_height * linear.in_width;
    float* row = run.at(plan.arena.features) + std::int64_t{sample} * plan.feature_stride;
    for (int c = 0; c < linear.in_channels; ++c)
        std::memcpy(row + std::int64_t{c} * size, value + std::int64_t{c} * linear.in_plane, sizeof(float) * static_cast<std::size_t>(size));
    return true;
}

// The linear part for `batch` samples, the first of which is number `offset` of its mini-batch. Returns the logits.
static const float* forward_batch(const Run& run, int batch, std::uint32_t offset) {
    FEDTIDE_SECTION(linear, "linear: forward");
    const Plan& plan = run.plan;
    const float* value = run.at(plan.arena.features);
    int stride = plan.feature_stride;
    for (int i = plan.first_linear; i < plan.num_stages; ++i) {
        const Stage& s = plan.stages[i];
        float* out = run.at(s.value);
        if (s.kind == Kind::linear) {
            linear_forward(s, run.at(plan.arena.theta + s.weight), run.at(plan.arena.theta + s.bias), value, batch, out);
        } else {
            for (int b = 0; b < batch; ++b)
                run_planes(run, s, value + std::int64_t{b} * stride, out + std::int64_t{b} * s.stride, b,
                           {run.key, run.step, offset + static_cast<std::uint32_t>(b)});
        }
        value = out;
        stride = s.stride;
    }
    return value;
}

// Cross-entropy of one row of logits; slope (may be null) gets its gradient times scale.
static double cross_entropy(const float* logit, int count, int label, float scale, float* slope, bool* correct) {
    int best = 0;
    for (int i = 1; i < count; ++i)
        if (logit[i] > logit[best]) best = i;
    *correct = best == label;
    float sum = 0;
    for (int i = 0; i < count; ++i) {
        const float e = expf(logit[i] - logit[best]);
        if (slope) slope[i] = e;
        sum += e;
    }
    if (slope) {
        for (int i = 0; i < count; ++i) slope[i] *= scale / sum;
        slope[label] -= scale;
    }
    return log(static_cast<double>(sum)) - (static_cast<double>(logit[label]) - static_cast<double>(logit[best]));
}

// Backward through the linear part: slopes[0] holds the gradient of the logits. Returns that of the features.
static const float* backward_batch(const Run& run, int batch, bool add) {
    FEDTIDE_SECTION(linear, "linear: backward");
    const Plan& plan = run.plan;
    int turn = 0;
    for (int i = plan.num_stages - 1; i >= plan.first_linear; --i) {
        const Stage& s = plan.stages[i];
        const bool first = i == plan.first_linear;
        const float* in = first ? run.at(plan.arena.features) : run.at(plan.stages[i - 1].value);
        float *slope = run.at(plan.arena.slopes[turn]), *next = run.at(plan.arena.slopes[1 - turn]);
        if (s.kind == Kind::linear) {
            linear_backward(s, run.at(plan.arena.theta + s.weight), in, slope, batch,
                            run.at(plan.arena.gradient + s.weight), run.at(plan.arena.gradient + s.bias),
                            s.needs_input_gradient ? next : nullptr, add);
            turn = 1 - turn;
        } else if (s.kind == Kind::relu || s.drops) {
            for (int b = 0; b < batch; ++b) {
                float* row = slope + std::int64_t{b} * s.stride;
                multiply(s, row, run.kept(b) + s.kept_factor, row);
            }
        }
    }
    return run.at(plan.arena.slopes[turn]);
}

static void backward_conv(const Run& run, const Stage& s, const float* slope, int sample, float* out) {
    const Plan& plan = run.plan;
    float* kept = run.kept(sample);
    const std::int32_t *active = ints(kept + s.kept_active), *choice = ints(kept + s.kept_choice);
    std::int32_t* offset = ints(run.at(plan.arena.list_offset));
    std::int32_t *begin = ints(run.at(plan.arena.list_begin)), *end = ints(run.at(plan.arena.list_end));
    float* value = run.at(plan.arena.list_value);
    const Lists lists = {active + 1, begin, end, offset, value, active[0]};
    {
        FEDTIDE_SECTION(list, "conv: list of non-zeros");
        int length = 0;
        for (int i = 0; i < lists.count; ++i) {
            const std::int64_t plane = std::int64_t{lists.channel[i]} * s.out_plane;
            begin[i] = length;
            end[i] = append_nonzeros(slope + plane, choice + plane, s.out_plane, s.drops ? s.keep_scale : 1.0f, offset, value,
                                     length);
            store<W>(value + end[i], F<W>{});
            length = (end[i] + W - 1) / W * W;
        }
        bias_gradient(lists, run.at(plan.arena.gradient + s.bias));
    }
    {
        FEDTIDE_SECTION(weight, "conv: weight gradient");
        FEDTIDE_BY_LANES(s.patch_lanes,
                         weight_gradient<L>(s, lists, kept + s.kept_input, run.at(plan.arena.gradient + s.weight)));
    }
    if (!s.needs_input_gradient) return;
    float* patches = run.at(plan.arena.patches);
    {
        FEDTIDE_SECTION(input, "conv: input gradient");
        std::memset(patches, 0, sizeof(float) * static_cast<std::size_t>(s.padded_height) * s.padded_width * s.channel_stride);
        const float* weight = run.at(plan.arena.theta + s.weight);
        if (plan.fast) {
            std::int32_t *patch = ints(run.at(plan.arena.patch)), *start = ints(run.at(plan.arena.begin));
            const int count = list_patches(s, slope, choice, lists.channel, lists.count, run.at(plan.arena.last_value),
                                           run.at(plan.arena.last_choice), ints(run.at(plan.arena.place)), patch, start, offset, value);
            const Lists by_patch = {patch, start, start + 1, offset, value, count};
            FEDTIDE_BY_LANES(s.patch_lanes, gather_input_gradient<L>(s, by_patch, patch, weight, patches));
        } else {
            FEDTIDE_BY_LANES(s.patch_lanes, input_gradient<L>(s, lists, weight, patches));
        }
    }
    FEDTIDE_SECTION(first, "conv: gradient to planes");
    FEDTIDE_BY_LANES(s.patch_lanes, from_channel_last<L>(s, patches, out));
}

// Backward through the spatial part of one sample, down to the first convolution. `spare` holds one sample's planes.
static void backward_sample(const Run& run, const float* feature_slope, int sample, float* current, float* spare) {
    const Plan& plan = run.plan;
    const Stage& linear = plan.stages[plan.first_linear];
    const int size = linear.in_height * linear.in_width;
    for (int c = 0; c < linear.in_channels; ++c)
        std::memcpy(current + std::int64_t{c} * linear.in_plane, feature_slope + std::int64_t{c} * size,
                    sizeof(float) * static_cast<std::size_t>(size));
    for (int i = plan.first_linear - 1; i >= 0; --i) {
        const Stage& s = plan.stages[i];
        if (!s.has_parameters && !s.needs_input_gradient) return;
        if (s.kind == Kind::conv) {
            backward_conv(run, s, current, sample, spare);
        } else if (s.kind == Kind::pool) {
            pool_backward(s, current, ints(run.kept(sample) + s.kept_choice), spare);
        } else {
            if (s.kind == Kind::relu || s.drops) multiply(s, current, run.kept(sample) + s.kept_factor, current);
            continue;
        }
        float* swap = current;
        current = spare;
        spare = swap;
    }
}

static void clear_conv_gradients(const Run& run) {
    for (int i = 0; i < run.plan.first_linear; ++i) {
        const Stage& s = run.plan.stages[i];
        if (s.kind != Kind::conv) continue;
        std::memset(run.at(run.plan.arena.gradient + s.weight), 0,
                    sizeof(float) * static_cast<std::size_t>(s.out_channels) * s.kernel * s.weight_row);
        std::memset(run.at(run.plan.arena.gradient + s.bias), 0, sizeof(float) * static_cast<std::size_t>(s.out_channels));
    }
}

// theta -= learning_rate * (gradient + proximal * (theta - start)); padding keeps its zeros.
// Steered: velocity = momentum * velocity + gradient + proximal * (theta - start) + correction; theta -= learning_rate * velocity.
static void descend(const Run& run, float learning_rate, float proximal, float momentum) {
    FEDTIDE_SECTION(descend, "SGD step");
    const Plan& plan = run.plan;
    float *theta = run.at(plan.arena.theta), *gradient = run.at(plan.arena.gradient);
    const float* start = run.at(plan.arena.start);
    for (int i = 0; i < plan.first_linear; ++i) {  // rows of short patches end in other pixels' products
        const Stage& s = plan.stages[i];
        const int used = s.kernel * s.channel_stride;
        if (s.kind != Kind::conv || used == s.weight_row) continue;
        for (int row = 0; row < s.out_channels * s.kernel; ++row)
            for (int x = used; x < s.weight_row; ++x) gradient[s.weight + std::int64_t{row} * s.weight_row + x] = 0;
    }
    const F<W> rate = splat<W>(learning_rate), pull = splat<W>(proximal);
    if (plan.steers) {
        const float* correction = run.at(plan.arena.correction);
        float* velocity = run.at(plan.arena.velocity);
        const F<W> memory = splat<W>(momentum);
        for (std::int64_t i = 0; i < plan.packed_size; i += W) {
            const F<W> t = load<W>(theta + i);
            const F<W> slope = load<W>(gradient + i) + pull * (t - load<W>(start + i)) + load<W>(correction + i);
            const F<W> v = memory * load<W>(velocity + i) + slope;
            store<W>(velocity + i, v);
            store<W>(theta + i, t - rate * v);
        }
        return;
    }
    for (std::int64_t i = 0; i < plan.packed_size; i += W) {
        const F<W> t = load<W>(theta + i);
        store<W>(theta + i, t - rate * (load<W>(gradient + i) + pull * (t - load<W>(start + i))));
    }
}

static std::int64_t train(const Plan& plan, const Data& data, const Job& job, float* arena) {
    Run run = {plan, arena, true, job.key, 0};
    pack(plan, job.start, run.at(plan.arena.theta));
    std::memcpy(run.at(plan.arena.start), run.at(plan.arena.theta), sizeof(float) * static_cast<std::size_t>(plan.packed_size));
    if (plan.steers) {  // an arena serves one job after another
        std::memset(run.at(plan.arena.velocity), 0, sizeof(float) * static_cast<std::size_t>(plan.packed_size));
        if (job.correction) pack(plan, job.correction, run.at(plan.arena.correction));
    }
    for (std::int64_t step = 0; step < job.steps; ++step) {
        run.step = static_cast<std::uint32_t>(step);
        const std::int64_t begin = job.bounds[step], size = job.bounds[step + 1] - begin;
        const std::int64_t parts = (size + plan.batch - 1) / plan.batch;
        clear_conv_gradients(run);
        transform_weights(run);
        std::int64_t done = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
            if (job.halt->asked()) return all_finite;
            const int batch = static_cast<int>((size - done + parts - part - 1) / (parts - part));
            const std::int64_t* visited = job.visited + begin + done;
            for (int b = 0; b < batch; ++b) {
                if (b + 1 < batch) fetch_image(plan, data, visited[b + 1]);
                if (!forward_sample(run, data, visited[b], b, static_cast<std::uint32_t>(done + b))) return visited[b];
            }
            const float* logits = forward_batch(run, batch, static_cast<std::uint32_t>(done));
            const int stride = plan.stages[plan.num_stages - 1].stride;
            float* slopes = run.at(plan.arena.slopes[0]);
            for (int b = 0; b < batch; ++b) {
                bool correct;
                float* slope = slopes + std::int64_t{b} * stride;
                cross_entropy(logits + std::int64_t{b} * stride, plan.num_labels, data.labels[visited[b]],
                              1.0f / static_cast<float>(size), slope, &correct);
                for (int i = plan.num_labels; i < stride; ++i) slope[i] = 0;
            }
            const float* feature_slopes = backward_batch(run, batch, part > 0);
            if (plan.spatial_gradient) {
                for (int b = 0; b < batch; ++b)
                    backward_sample(run, feature_slopes + std::int64_t{b} * plan.feature_stride, b, run.at(plan.arena.planes[0]),
                                    run.at(plan.arena.planes[1]));
            }
            done += batch;
        }
        descend(run, job.learning_rate, job.proximal, job.momentum);
    }
    unpack_difference(plan, run.at(plan.arena.theta), job.start, job.update);
    return all_finite;
}

static std::int64_t evaluate(const Plan& plan, const Data& data, std::int64_t first, int count, float* arena, Sum* sum) {
    const Run run = {plan, arena, false, 0, 0};
    *sum = {0, 0.0};
    transform_weights(run);
    for (const std::int64_t last = first + count; first < last; first += plan.batch) {
        const int batch = last - first < plan.batch ? static_cast<int>(last - first) : plan.batch;
        for (int b = 0; b < batch; ++b)
            if (!forward_sample(run, data, first + b, b, 0)) return first + b;
        const float* logits = forward_batch(run, batch, 0);
        const int stride = plan.stages[plan.num_stages - 1].stride;
        for (int b = 0; b < batch; ++b) {
            bool correct;
            sum->loss += cross_entropy(logits + std::int64_t{b} * stride, plan.num_labels, data.labels[first + b], 0, nullptr, &correct);
            sum->correct += correct;
        }
    }
    return all_finite;
}
