#include <bits/stdc++.h>
#include "solution.cpp"

static std::string quoted(const std::string& text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        char escape[8];
        if (c == '"' || c == '\\') { out += '\\'; out += char(c); }
        else if (c < 0x20) { std::snprintf(escape, sizeof escape, "\\u%04x", c); out += escape; }
        else out += char(c);
    }
    return out + "\"";
}

static void check(int a, int b) {
    std::ostringstream printed;
    std::streambuf* stdout_buffer = std::cout.rdbuf(printed.rdbuf());
    std::string item;
    auto start = std::chrono::steady_clock::now();
    try {
        int value = solution(a, b);
        std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
        std::ostringstream out;
        out << R"({"type":"result","value":)" << value << R"(,"time":)" << seconds.count() << "}";
        item = out.str();
    } catch (const std::exception& error) {
        item = R"({"type":"error","value":)" + quoted(error.what()) + "}";
    }
    std::cout.rdbuf(stdout_buffer);
    if (!printed.str().empty())
        std::cout << R"({"type":"output","value":)" << quoted(printed.str()) << "}\n";
    std::cout << item << std::endl;
}

int main() {
    check(1, 2);
    check(40, 2);
}
