// Where the time goes: with -DFEDTIDE_PROFILE, time stamp ticks per section of a training step, printed at exit.
#pragma once

#if defined(FEDTIDE_PROFILE) && defined(__x86_64__)
#include <cstdio>

namespace fedtide {
namespace profile {
struct Section {
    const char* name;
    unsigned long long ticks = 0;
    explicit Section(const char* n) : name(n) {}
    ~Section() { std::fprintf(stderr, "profile %-28s %14llu\n", name, ticks); }
};
struct Timer {
    Section& section;
    unsigned long long begin;
    explicit Timer(Section& s) : section(s), begin(__builtin_ia32_rdtsc()) {}
    ~Timer() { section.ticks += __builtin_ia32_rdtsc() - begin; }
};
}  // namespace profile
}  // namespace fedtide
#define FEDTIDE_SECTION(id, name)                          \
    static ::fedtide::profile::Section section_##id(name); \
    const ::fedtide::profile::Timer timer_##id(section_##id)
#else
#define FEDTIDE_SECTION(id, name)
#endif
