// dead_zone: fedtide/codec/dead_zone.py, which tells what is done and why. The entropy coder is range ANS with words of
// 32 bits, a state of 64 and probabilities of 24, and writes what the package constriction writes.
#include <cfloat>
#include <cstring>
#include <memory>
#include <vector>

#include "codec.h"

namespace fedtide::codec {

namespace {

constexpr double rounding = 0.4;
constexpr int steps_per_octave = 2048, octaves = 20, escape = 11, symbols = escape + 1, before = 8;
constexpr int weights[before] = {4, 3, 2, 2, 1, 1, 1, 1}, total_weight = 15;
constexpr int edges[] = {1, 2, 3, 4, 6, 9, 13, 20, 32, 50}, num_edges = 10, classes = num_edges + 2;
constexpr int renewed[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}, periods = 12, cells = classes * symbols;
constexpr std::int64_t unit = 16, prior = 512;
constexpr int step_bits = 20, low_width = 5, centre_bits = 6, head_bits = step_bits + low_width + 3 * centre_bits;
constexpr std::int64_t index_offset = std::int64_t{1} << 19;
constexpr int coder_bits = 20;  // about what the coder adds to the ideal length
constexpr int longest_row = 64;

struct Layout {                        // rows of neighbours; only the last row may be short
    std::int64_t rows, columns, full;  // full: columns that reach all rows
    explicit Layout(std::int64_t d)
        : rows((d + 63) / 64), columns((d + rows - 1) / rows), full(columns - (rows * columns - d)) {}
};

// What does not depend on the update: the class of a weighted sum, its scale in early columns, the tables at the start.
struct Model {
    std::uint8_t class_of[total_weight * escape + 1];
    std::uint8_t period_of[longest_row];
    std::int64_t tables[classes][symbols];
    int weight_before[before];  // sum of the weights of the elements that a column has before it

    Model() {
        for (int w = 0; w <= total_weight * escape; ++w)
            class_of[w] = static_cast<std::uint8_t>(std::upper_bound(edges, edges + num_edges, w) - edges);
        for (int c = 0; c < longest_row; ++c)
            period_of[c] = static_cast<std::uint8_t>(std::upper_bound(renewed, renewed + periods, c) - renewed - 1);
        for (int c = 0, sum = 0; c < before; ++c) {
            weight_before[c] = sum;
            sum += weights[c];
        }
        for (int row = 0; row < classes; ++row) {
            const int middle = row == 0           ? 0
                               : row < num_edges  ? (edges[row - 1] + edges[row] - 1) / 2
                               : row == num_edges ? edges[num_edges - 1]
                                                  : 3;
            const std::int64_t mean = 3 * total_weight + 85 * middle, whole = 100 * total_weight;
            std::int64_t rest = prior << 20;
            for (int symbol = 0; symbol < symbols; ++symbol) {
                const std::int64_t part = symbol < escape ? rest * whole / (mean + whole) : rest;
                tables[row][symbol] = std::max<std::int64_t>(part >> 20, 1);
                rest -= part;
            }
        }
    }

    // The class of an element in this column, of the weighted sum of those before it.
    std::uint8_t class_of_sum(int weighted, int column) const {
        if (column == 0) return classes - 1;
        return class_of[column < before ? weighted * total_weight / weight_before[column] : weighted];
    }

    // The same, of its row's symbols with `before` zeros in front of them.
    int class_at(const std::uint8_t* symbol, int column) const {
        const std::uint8_t* last = symbol + before + column - 1;
        int weighted = 0;
        for (int back = 0; back < before; ++back) weighted += weights[back] * last[-back];
        return class_of_sum(weighted, column);
    }
};
const Model model;

using Counts = std::vector<std::int64_t>;  // how often each cell came [periods classes symbols]

// The tables of every period [periods classes symbols]: those before it and what was seen since.
std::vector<std::int64_t> tables_of(const Counts& counts) {
    std::vector<std::int64_t> made(counts.size());
    for (int cell = 0; cell < cells; ++cell) {
        std::int64_t now = model.tables[cell / symbols][cell % symbols];
        for (int period = 0; period < periods; ++period) {
            const auto at = static_cast<std::size_t>(period * cells + cell);
            made[at] = now;
            now += unit * counts[at];
        }
    }
    return made;
}

// Of one table, in parts of 2^24: where each symbol's share begins, as constriction rounds it (in float32).
struct Shares {
    std::uint32_t begin[symbols + 1];
    explicit Shares(const std::int64_t* table) {
        float sum = 0;
        for (int i = 0; i < symbols; ++i) sum += static_cast<float>(table[i]);
        const float scale = static_cast<float>((1u << 24) - symbols) / sum;
        float left = 0;
        for (int i = 0; i < symbols; ++i) {
            begin[i] = static_cast<std::uint32_t>(left * scale) + static_cast<std::uint32_t>(i);
            left += static_cast<float>(table[i]);
        }
        begin[symbols] = 1u << 24;
    }
};

double step_of(std::int64_t index) { return std::pow(2.0, static_cast<double>(index) / steps_per_octave); }

int octave_of(double value) {
    int exponent;
    std::frexp(value, &exponent);
    return exponent;
}

struct Quantized {                        // an update as whole numbers
    std::vector<std::int32_t> magnitude;  // [d]
    int low_bits = 0;                     // how many bits of every magnitude are sent as they are
    std::vector<std::uint8_t> symbol;     // row after row, each with zeros in front [rows, before + columns]
    std::vector<std::uint8_t> place;      // class of every element, laid out as the symbols are
    Counts counts;
    double bits = 0;  // of the payload; the coder may add a few

    Quantized(const std::vector<float>& size, std::int64_t index) : counts(static_cast<std::size_t>(periods * cells)) {
        const auto d = static_cast<std::int64_t>(size.size());
        const Layout layout(d);
        const auto inverse = static_cast<float>(1 / step_of(index)), shift = static_cast<float>(rounding);
        magnitude.resize(size.size());
        std::int64_t sum = 0, nonzero = 0;
        for (std::size_t i = 0; i < size.size(); ++i) {
            magnitude[i] = static_cast<std::int32_t>(size[i] * inverse + shift);
            sum += magnitude[i];
            nonzero += magnitude[i] != 0;
        }
        low_bits = std::max(octave_of(static_cast<double>(sum) / static_cast<double>(d)) - 2, 0);
        const std::int64_t width = before + layout.columns;
        symbol.assign(static_cast<std::size_t>(layout.rows * width), 0);
        std::int64_t apart = 0;  // bits of what is beyond the largest symbol
        for (std::int64_t row = 0; row < layout.rows; ++row) {
            std::uint8_t* mine = symbol.data() + row * width + before;
            const std::int64_t first = row * layout.columns, filled = std::min(layout.columns, d - first);
            for (std::int64_t column = 0; column < filled; ++column) {
                const std::int32_t high = magnitude[static_cast<std::size_t>(first + column)] >> low_bits;
                mine[column] = static_cast<std::uint8_t>(std::min<std::int32_t>(high, escape));
                if (high >= escape) apart += 4 + bits_of(static_cast<Word>(high - (escape - 1)));
            }
        }
        // The weighted sums of all elements at once; they fit a byte, and the zeros in front keep the rows apart.
        place.assign(symbol.size(), 0);
        static_assert(total_weight * escape < 256 && weights[0] == 4 && weights[1] == 3 && weights[3] == 2 &&
                      weights[4] == 1);
        const std::uint8_t* s = symbol.data();
        for (std::size_t i = before; i < symbol.size(); ++i)
            place[i] = static_cast<std::uint8_t>(4 * s[i - 1] + 3 * s[i - 2] + 2 * (s[i - 3] + s[i - 4]) + s[i - 5] +
                                                 s[i - 6] + s[i - 7] + s[i - 8]);
        for (std::int64_t row = 0; row < layout.rows; ++row) {
            std::uint8_t *chosen = place.data() + row * width + before, *mine = symbol.data() + row * width + before;
            const std::int64_t filled = std::min(layout.columns, d - row * layout.columns);
            for (std::int64_t column = 0; column < filled; ++column) {
                chosen[column] = model.class_of_sum(chosen[column], static_cast<int>(column));
                ++counts[static_cast<std::size_t>((model.period_of[column] * classes + chosen[column]) * symbols +
                                                  mine[column])];
            }
        }
        bits = coded_bits() + static_cast<double>(nonzero + low_bits * d + apart + head_bits + coder_bits);
    }

  private:
    double coded_bits() const {
        const std::vector<std::int64_t> tables = tables_of(counts);
        double found = 0;
        for (std::size_t first = 0; first < counts.size(); first += symbols) {
            std::int64_t all = 0, came = 0;
            for (int i = 0; i < symbols; ++i) all += tables[first + i], came += counts[first + i];
            if (!came) continue;
            const double whole = std::log2(static_cast<double>(all));
            for (int i = 0; i < symbols; ++i)
                if (counts[first + i])
                    found += static_cast<double>(counts[first + i]) *
                             (whole - std::log2(static_cast<double>(tables[first + i])));
        }
        return found;
    }
};

// The finest step that fits (so that 99.8 % of the budget is used, if steps allow), or nothing if none does.
bool finest(const std::vector<float>& size, double budget, std::int64_t* chosen, std::unique_ptr<Quantized>* found) {
    const auto d = static_cast<std::int64_t>(size.size());
    const double largest = *std::max_element(size.begin(), size.end());
    const float sum = pairwise_sum<float>([&](std::int64_t i) { return size[static_cast<std::size_t>(i)]; }, 0, d);
    const auto mean = static_cast<float>(static_cast<double>(sum) / static_cast<double>(d));
    const auto coarsest = static_cast<std::int64_t>(std::floor(steps_per_octave * std::log2(largest / (1 - rounding))));
    std::int64_t fits = coarsest + 1, misses = coarsest - octaves * steps_per_octave - 1;
    const double rate = budget / static_cast<double>(d);
    double index = std::nearbyint((std::log2(static_cast<double>(mean)) + 2.3 - rate) * steps_per_octave);
    double slope = -1 / ((0.6 + 0.75 * rate) * steps_per_octave);
    bool has_last = false;
    double last_index = 0, last_excess = 0;
    found->reset();
    while (fits - misses > 1) {
        if (!(static_cast<double>(misses) < index && index < static_cast<double>(fits)))
            index = std::floor(static_cast<double>(misses + fits) / 2);
        const auto now_index = static_cast<std::int64_t>(index);
        auto now = std::make_unique<Quantized>(size, now_index);
        const double bits = now->bits;
        if (bits > budget) {
            misses = now_index;
        } else {
            fits = now_index;
            *chosen = now_index;
            *found = std::move(now);
            if (bits >= 0.998 * budget) break;
        }
        const double excess = std::log(bits / (0.999 * budget));
        if (has_last && last_index != index) slope = std::min((excess - last_excess) / (index - last_index), slope / 4);
        has_last = true;
        last_index = index;
        last_excess = excess;
        index -= std::nearbyint(excess / slope);
    }
    return *found != nullptr;
}

class Encoder {  // what is written last is read first
  public:
    void put(std::uint32_t begin, std::uint32_t share) {
        if (state_ >> 40 >= share) {
            words_.push_back(static_cast<std::uint32_t>(state_));
            state_ >>= 32;
        }
        state_ = state_ / share << 24 | (begin + state_ % share);
    }
    void put_uniform(std::uint32_t value, int bits) {
        const std::uint32_t share = (1u << 24) >> bits;
        put(value * share, share);
    }
    Number number() const {
        Number made((words_.size() + 1) / 2 + 2);
        std::size_t at = 0;
        const auto put = [&](std::uint32_t word) {
            made[at / 2] |= static_cast<Word>(word) << at % 2 * 32;
            ++at;
        };
        for (const std::uint32_t word : words_) put(word);
        put(static_cast<std::uint32_t>(state_));
        put(static_cast<std::uint32_t>(state_ >> 32));
        trim(made);
        return made;
    }

  private:
    std::vector<std::uint32_t> words_;
    std::uint64_t state_ = 0;
};

class Decoder {  // reads on past the end, as if the state went on
  public:
    explicit Decoder(const Number& number) {
        for (const Word word : number) {
            words_.push_back(static_cast<std::uint32_t>(word));
            words_.push_back(static_cast<std::uint32_t>(word >> 32));
        }
        while (!words_.empty() && words_.back() == 0) words_.pop_back();
        while (!words_.empty() && state_ < std::uint64_t{1} << 32) take();
    }
    std::uint32_t quantile() const { return static_cast<std::uint32_t>(state_) & ((1u << 24) - 1); }
    void accept(std::uint32_t begin, std::uint32_t share) {
        state_ = (state_ >> 24) * share + (quantile() - begin);
        if (state_ < std::uint64_t{1} << 32 && !words_.empty()) take();
    }
    std::uint32_t uniform(int bits) {
        const std::uint32_t share = (1u << 24) >> bits, value = quantile() / share;
        accept(value * share, share);
        return value;
    }
    bool empty() const { return state_ == 0; }

  private:
    void take() {
        state_ = state_ << 32 | words_.back();
        words_.pop_back();
    }
    std::vector<std::uint32_t> words_;
    std::uint64_t state_ = 0;
};

Number coded(const Quantized& quantized, const float* update) {
    const auto d = static_cast<std::int64_t>(quantized.magnitude.size());
    const Layout layout(d);
    const auto& magnitude = quantized.magnitude;
    Encoder ans;
    for (std::int64_t i = d; i-- > 0;)
        if (magnitude[static_cast<std::size_t>(i)]) ans.put_uniform(std::signbit(update[i]), 1);
    if (quantized.low_bits)
        for (std::int64_t i = d; i-- > 0;)
            ans.put_uniform(
                static_cast<std::uint32_t>(magnitude[static_cast<std::size_t>(i)]) & ((1u << quantized.low_bits) - 1),
                quantized.low_bits);
    std::vector<std::uint32_t> beyond;
    for (const std::int32_t each : magnitude)
        if (each >> quantized.low_bits >= escape)
            beyond.push_back(static_cast<std::uint32_t>((each >> quantized.low_bits) - (escape - 1)));
    for (std::size_t i = beyond.size(); i-- > 0;) {
        const int width = bits_of(static_cast<Word>(beyond[i])) - 1;
        if (width) ans.put_uniform(beyond[i] - (1u << width), width);
    }
    for (std::size_t i = beyond.size(); i-- > 0;)
        ans.put_uniform(static_cast<std::uint32_t>(bits_of(static_cast<Word>(beyond[i])) - 1), 5);
    const std::vector<std::int64_t> tables = tables_of(quantized.counts);
    std::vector<Shares> shares;
    for (std::size_t first = 0; first < tables.size(); first += symbols) shares.emplace_back(tables.data() + first);
    for (std::int64_t column = layout.columns; column-- > 0;) {
        const int period = model.period_of[column];
        for (std::int64_t row = column < layout.full ? layout.rows : layout.rows - 1; row-- > 0;) {
            const auto at = static_cast<std::size_t>(row * (before + layout.columns) + before + column);
            const int symbol = quantized.symbol[at];
            const Shares& share = shares[static_cast<std::size_t>(period * classes + quantized.place[at])];
            ans.put(share.begin[symbol], share.begin[symbol + 1] - share.begin[symbol]);
        }
    }
    return ans.number();
}

// Where within their cells the elements of magnitude 1, 2 and 3+ lie on average, in 64ths of the cell.
void centres_of(const std::vector<float>& size, const std::vector<std::int32_t>& magnitude, double step, int* centres) {
    std::int64_t count[3] = {};
    double total[3] = {};
    const auto narrow = static_cast<float>(step);
    for (std::size_t i = 0; i < size.size(); ++i) {
        if (!magnitude[i]) continue;
        const int group = std::min(magnitude[i], 3) - 1;
        ++count[group];
        total[group] += static_cast<double>(size[i] / narrow) - magnitude[i] + rounding;
    }
    for (int i = 0; i < 3; ++i)
        centres[i] =
            count[i]
                ? static_cast<int>(std::clamp(std::trunc(total[i] / static_cast<double>(count[i]) * 64), 0.0, 63.0))
                : 32;
}

// Reads the symbols column by column; row after row, each with zeros in front [rows, before + columns].
std::vector<std::uint8_t> read_symbols(Decoder& ans, const Layout& layout) {
    const std::int64_t width = before + layout.columns;
    std::vector<std::uint8_t> symbol(static_cast<std::size_t>(layout.rows * width));
    std::int64_t tables[cells];
    std::memcpy(tables, model.tables, sizeof tables);
    std::int64_t counts[cells] = {};
    std::vector<Shares> shares;
    for (std::int64_t column = 0; column < layout.columns; ++column) {
        if (column == renewed[model.period_of[column]]) {
            shares.clear();
            for (int cell = 0; cell < cells; ++cell) {
                tables[cell] += unit * counts[cell];
                counts[cell] = 0;
            }
            for (int first = 0; first < cells; first += symbols) shares.emplace_back(tables + first);
        }
        const std::int64_t filled = column < layout.full ? layout.rows : layout.rows - 1;
        for (std::int64_t row = 0; row < filled; ++row) {
            std::uint8_t* mine = symbol.data() + row * width;
            const int chosen = model.class_at(mine, static_cast<int>(column));
            const Shares& share = shares[static_cast<std::size_t>(chosen)];
            const std::uint32_t quantile = ans.quantile();
            int found = 0;
            while (found < escape && share.begin[found + 1] <= quantile) ++found;
            ans.accept(share.begin[found], share.begin[found + 1] - share.begin[found]);
            mine[before + column] = static_cast<std::uint8_t>(found);
            ++counts[chosen * symbols + found];
        }
    }
    return symbol;
}

}  // namespace

double dead_zone_least_bits(std::int64_t num_parameters) {
    return Quantized(std::vector<float>(static_cast<std::size_t>(num_parameters)), 0).bits;
}

std::string encode_dead_zone(const float* update, std::int64_t d, std::int64_t whole_bits, BitGenerator& draws,
                             std::int64_t* bits) {
    *bits = 0;
    std::vector<float> size(update, update + d);
    float largest = 0;
    for (float& each : size) largest = std::max(largest, each = std::fabs(each));
    const int octave = octave_of(largest);
    for (float& each : size) each = std::ldexp(each, -octave);  // at most 1
    auto limit = static_cast<double>(whole_bits);
    double least = -1;
    while (std::any_of(size.begin(), size.end(), [](float each) { return each != 0; })) {
        std::int64_t index = 0;
        std::unique_ptr<Quantized> quantized;
        if (!finest(size, limit, &index, &quantized)) {
            if (least < 0) least = dead_zone_least_bits(d);
            if (least > limit) break;
            for (float& each : size) each *= draws.random() < 0.5 ? 1.0f : 0.0f;
            continue;
        }
        int centres[3];
        centres_of(size, quantized->magnitude, step_of(index), centres);
        const Number number = coded(*quantized, update);
        const std::int64_t length = bits_of(number), sent = head_bits + length;
        if (sent <= whole_bits) {
            std::string payload;
            BitWriter writer(payload);
            writer.put(static_cast<Word>(index + octave * steps_per_octave + index_offset), step_bits);
            writer.put(static_cast<Word>(quantized->low_bits), low_width);
            for (const int centre : centres) writer.put(static_cast<Word>(centre), centre_bits);
            writer.put(number, length);
            writer.end();
            *bits = sent;
            return payload;
        }
        limit = std::min(limit, quantized->bits) - static_cast<double>(sent - whole_bits);  // the coder added more
    }
    return {};
}

Refusal decode_dead_zone(Payload payload, std::int64_t payload_bits, std::int64_t d, float* update) {
    BitReader reader(payload.bytes, payload.size);
    const auto index = static_cast<std::int64_t>(reader.get(step_bits)) - index_offset;
    const int low_bits = static_cast<int>(reader.get(low_width));
    double centre[4] = {0};
    for (int i = 1; i < 4; ++i) centre[i] = (static_cast<double>(reader.get(centre_bits)) + 0.5) / 64 - rounding;
    const Number number = reader.number(payload_bits - head_bits);
    if (low_bits > octaves || bits_of(number) != payload_bits - head_bits) return Refusal::length;
    const Layout layout(d);
    Decoder ans(number);
    const std::vector<std::uint8_t> symbol = read_symbols(ans, layout);
    std::vector<std::int64_t> magnitude(static_cast<std::size_t>(d));
    std::vector<std::size_t> escaped;
    for (std::size_t i = 0; i < magnitude.size(); ++i) {
        const std::size_t row = i / static_cast<std::size_t>(layout.columns),
                          column = i % static_cast<std::size_t>(layout.columns);
        magnitude[i] = symbol[row * static_cast<std::size_t>(before + layout.columns) + before + column];
        if (magnitude[i] == escape) escaped.push_back(i);
    }
    std::vector<int> width;
    for (std::size_t i = 0; i < escaped.size(); ++i) width.push_back(static_cast<int>(ans.uniform(5)));
    if (std::any_of(width.begin(), width.end(), [](int each) { return each > octaves + 1; })) return Refusal::magnitude;
    for (std::size_t i = 0; i < escaped.size(); ++i) {
        const std::int64_t power = std::int64_t{1} << width[i];
        magnitude[escaped[i]] += power + (width[i] ? ans.uniform(width[i]) : 0) - 1;
    }
    if (low_bits)
        for (std::int64_t& each : magnitude) each = each << low_bits | ans.uniform(low_bits);
    const double step = step_of(index), largest = FLT_MAX;
    for (std::size_t i = 0; i < magnitude.size(); ++i) {
        const bool negative = magnitude[i] > 0 && ans.uniform(1) == 1;
        const double inside = centre[std::min<std::int64_t>(magnitude[i], 3)];
        const double size = std::min((static_cast<double>(magnitude[i]) + inside) * step, largest);
        update[i] = static_cast<float>(negative ? -size : size);
    }
    return ans.empty() ? Refusal::none : Refusal::goes_on;
}

}  // namespace fedtide::codec
