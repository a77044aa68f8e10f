#include "history.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

namespace nowait_test::programs {

namespace {

void in_order(std::vector<history_entry>& entries) {
    std::sort(entries.begin(), entries.end(),
              [](const history_entry& a, const history_entry& b) { return a.began < b.began; });
}

/// How often each byte occurs, where the order is not known.
using census = std::array<std::size_t, 256>;
void count(const std::vector<history_entry>& entries, census& into) {
    for (const history_entry& e : entries) {
        for (const char c : e.bytes)
            ++into[static_cast<unsigned char>(c)];
    }
}
[[nodiscard]] bool matches(const census& put, const census& got, bool cut_short) {
    for (std::size_t i = 0; i < put.size(); ++i) {
        if (got[i] > put[i] || (got[i] != put[i] && !cut_short))
            return false;
    }
    return true;
}

[[nodiscard]] std::string check_pieces(const history& o) {
    census put{};
    census got{};
    count(o.puts, put);
    count(o.takes, got);
    return matches(put, got, o.cut_short) ? "" : "the stream: other bytes were read than written";
}

} // namespace

std::string all_bytes(std::vector<history_entry>& entries) {
    in_order(entries);
    std::string bytes;
    for (const history_entry& e : entries)
        bytes += e.bytes;
    return bytes;
}

std::string check_stream(history& o, bool exact) {
    if (o.spliced)
        return {}; // together with the others
    if (!exact)
        return check_pieces(o);
    const std::string put = all_bytes(o.puts);
    const std::string got = all_bytes(o.takes);
    if (got.size() > put.size() || put.compare(0, got.size(), got) != 0) {
        const auto differ = std::mismatch(got.begin(), got.end(), put.begin(), put.end());
        return "the stream: what was read differs from what was written at byte " +
               std::to_string(differ.first - got.begin()) + " of " + std::to_string(put.size());
    }
    if (got.size() != put.size() && !o.cut_short)
        return "the stream: " + std::to_string(put.size()) + " bytes were written, and " +
               std::to_string(got.size()) + " read";
    return {};
}

std::string check_spliced(const std::vector<const history*>& streams) {
    census put{};
    census got{};
    bool cut_short = false;
    for (const history* o : streams) {
        if (!o->spliced)
            continue;
        count(o->puts, put);
        count(o->takes, got);
        cut_short = cut_short || o->cut_short;
    }
    return matches(put, got, cut_short) ? "" : "spliced streams: other bytes were read than written";
}

std::string check_messages(history& o, bool has_priorities, bool exact) {
    std::map<unsigned, std::vector<std::uint64_t>> put;
    std::map<unsigned, std::vector<std::uint64_t>> got;
    in_order(o.puts);
    in_order(o.takes);
    for (const history_entry& e : o.puts)
        put[has_priorities ? e.priority : 0].push_back(e.message);
    for (const history_entry& e : o.takes)
        got[e.priority].push_back(e.message);
    if (!exact) {
        for (auto* side : {&put, &got}) {
            for (auto& [priority, messages] : *side)
                std::sort(messages.begin(), messages.end());
        }
    }
    if (o.cut_short && !exact) {
        for (const auto& [priority, messages] : got) {
            if (!std::includes(put[priority].begin(), put[priority].end(), messages.begin(), messages.end()))
                return "messages: one was received that was not sent";
        }
        return {};
    }
    if (o.cut_short) { // the rest is still in it
        for (auto& [priority, messages] : put)
            messages.resize(std::min(messages.size(), got[priority].size()));
        std::erase_if(got, [](const auto& entry) { return entry.second.empty(); });
        std::erase_if(put, [](const auto& entry) { return entry.second.empty(); });
    }
    if (put != got)
        return "messages: what was received is not what was sent, in its order";
    return {};
}

} // namespace nowait_test::programs
