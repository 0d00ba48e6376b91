// Checks of what Python hands over.
#pragma once

#include <stdexcept>

// A macro, so that the message is made only when it is needed: some checks run once per parameter.
#define REQUIRE(holds, message)                             \
    do {                                                    \
        if (!(holds)) throw std::invalid_argument(message); \
    } while (false)
