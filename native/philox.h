// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random words addressed by a key
// and a counter, so that a mask depends on nothing but where it is used.
#pragma once

struct Words {
    std::uint32_t word[4];
};

FEDTIDE_INLINE Words philox(std::uint64_t key, std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, std::uint32_t c3) {
    std::uint32_t k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0, b = std::uint64_t{0xCD9E8D57u} * c2;
        c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
        c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
        c1 = static_cast<std::uint32_t>(b);
        c3 = static_cast<std::uint32_t>(a);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

// Where a mask is used.
struct Draw {
    std::uint64_t key;  // of the job
    std::uint32_t step, sample;
};

// Calls keep(i, is it kept?) for count elements (or channels).
template <class Keep>
FEDTIDE_INLINE void draw_mask(const Stage& s, const Draw& draw, int count, Keep keep) {
    for (int block = 0; 4 * block < count; ++block) {
        const Words words = philox(draw.key, draw.step, static_cast<std::uint32_t>(s.layer), draw.sample,
                                   static_cast<std::uint32_t>(block));
        for (int i = 0; i < least(4, count - 4 * block); ++i) keep(4 * block + i, words.word[i] >= s.threshold);
    }
}
