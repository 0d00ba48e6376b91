// The layers that stand alone: ReLU, dropout and pools that do not follow a convolution. One sample at a time, as planes.
#pragma once

static void relu_forward(const Stage& s, const float* in, float* out, float* factor) {
    const int count = s.in_height * s.in_width;
    for (int c = 0; c < s.in_channels; ++c) {
        const std::int64_t plane = std::int64_t{c} * s.in_plane;
        for (int i = 0; i < count; ++i) {
            const float x = in[plane + i];
            out[plane + i] = x <= 0 ? 0 : x;
            if (factor) factor[plane + i] = x <= 0 ? 0.0f : 1.0f;
        }
    }
}

// Fills the factors of one sample: 0 or 1 / (1 - p).
static void draw_factors(const Stage& s, const Draw& draw, float* factor) {
    const int count = s.in_height * s.in_width;
    if (s.kind == Kind::channel_dropout) {
        draw_mask(s, draw, s.in_channels, [&](int c, bool kept) {
            for (int i = 0; i < count; ++i) factor[std::int64_t{c} * s.in_plane + i] = kept ? s.keep_scale : 0.0f;
        });
    } else if (s.in_channels == 1) {
        draw_mask(s, draw, count, [&](int i, bool kept) { factor[i] = kept ? s.keep_scale : 0.0f; });
    } else {
        draw_mask(s, draw, s.in_channels * count, [&](int i, bool kept) {
            factor[std::int64_t{i / count} * s.in_plane + i % count] = kept ? s.keep_scale : 0.0f;
        });
    }
}

// Dropout forward, and backward through ReLU and dropout.
static void multiply(const Stage& s, const float* in, const float* factor, float* out) {
    const int count = s.in_height * s.in_width;
    for (int c = 0; c < s.in_channels; ++c) {
        const std::int64_t plane = std::int64_t{c} * s.in_plane;
        for (int i = 0; i < count; ++i) out[plane + i] = in[plane + i] * factor[plane + i];
    }
}

static void copy_planes(const Stage& s, const float* in, float* out) {
    std::memcpy(out, in, sizeof(float) * static_cast<std::size_t>(s.in_channels) * s.in_plane);
}

static void pool_forward(const Stage& s, const float* in, float* out, std::int32_t* choice) {
    for (int c = 0; c < s.in_channels; ++c) {
        const float* plane = in + std::int64_t{c} * s.in_plane;
        for (int y = 0; y < s.out_height; ++y) {
            for (int x = 0; x < s.out_width; ++x) {
                int best = y * s.pool * s.in_width + x * s.pool;
                for (int dy = 0; dy < s.pool; ++dy) {
                    for (int dx = 0; dx < s.pool; ++dx) {
                        const int other = (y * s.pool + dy) * s.in_width + x * s.pool + dx;
                        if (plane[other] > plane[best]) best = other;
                    }
                }
                const std::int64_t place = std::int64_t{c} * s.out_plane + y * s.out_width + x;
                out[place] = plane[best];
                if (choice) choice[place] = best;
            }
        }
    }
}

static void pool_backward(const Stage& s, const float* slope, const std::int32_t* choice, float* out) {
    std::memset(out, 0, sizeof(float) * static_cast<std::size_t>(s.in_channels) * s.in_plane);
    for (int c = 0; c < s.in_channels; ++c) {
        for (int i = 0; i < s.out_height * s.out_width; ++i) {
            const std::int64_t place = std::int64_t{c} * s.out_plane + i;
            out[std::int64_t{c} * s.in_plane + choice[place]] = slope[place];
        }
    }
}
