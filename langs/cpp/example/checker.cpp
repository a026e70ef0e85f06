#include <bits/stdc++.h>
#include <fcntl.h>
#include <unistd.h>

// The names are out of the way of the solution's.
namespace checker {
// What the solution prints, by any way, goes to a file; the run's stdout, kept
// as another descriptor, carries the items and nothing else. It stands before
// the solution, whose own global objects may print too.
static const int results = dup(STDOUT_FILENO);
static const int printed = dup2(open("/tmp/printed", O_RDWR | O_CREAT | O_APPEND, 0600), STDOUT_FILENO);
} // namespace checker

#include "solution.cpp"

namespace checker {
static std::string json_text(std::string_view text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        char escape[8];
        if (c == '"' || c == '\\') { out += '\\'; out += char(c); }
        else if (c < 0x20) { std::snprintf(escape, sizeof escape, "\\u%04x", c); out += escape; }
        else out += char(c);
    }
    return out + "\"";
}

// Each item is one line, written as soon as it is known: an end of the whole
// program in a later call does not take it back.
static void report(std::string_view type, const std::string& value, const char* more = "") {
    std::string line = "{\"type\":" + json_text(type) + ",\"value\":" + value + more + "}\n";
    if (write(results, line.data(), line.size()) < 0) std::abort();
}

static void report_printed() {
    std::cout.flush();
    std::fflush(stdout);
    std::string text(lseek(printed, 0, SEEK_END), '\0');
    if (text.empty()) return;
    if (pread(printed, text.data(), text.size(), 0) < 0 || ftruncate(printed, 0) < 0) std::abort();
    report("output", json_text(text));
}

static void check(int a, int b) {
    std::string failure;
    auto start = std::chrono::steady_clock::now();
    try {
        int value = solution(a, b);
        std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
        report_printed();
        char more[40];
        std::snprintf(more, sizeof more, ",\"time\":%.9f", time.count());
        report("result", std::to_string(value), more);
        return;
    } catch (const std::exception& error) {
        failure = error.what();
    } catch (...) {
        failure = "something that is no std::exception was thrown";
    }
    report_printed();
    report("error", json_text(failure));
}
} // namespace checker

int main() {
    using namespace checker;
    if (results < 0 || printed < 0) std::abort();
    check(1, 2);
    check(40, 2);
}
