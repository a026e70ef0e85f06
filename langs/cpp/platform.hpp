// The platform's checkers include nothing but the solution: what they name comes
// with the workspace. The recipe includes this for those that call RunTest, and
// for no other, whose own names it could meet.
#pragma once

#include <bits/stdc++.h>

using namespace std;

namespace cofferdam {
inline void write(string& out, string_view text) {
    out += '"';
    for (unsigned char c : text) {
        char escape[8];
        if (c == '"' || c == '\\') { out += '\\'; out += char(c); }
        else if (c < 0x20) { snprintf(escape, sizeof escape, "\\u%04x", c); out += escape; }
        else out += char(c);
    }
    out += '"';
}

template <typename Value>
void write(string& out, const Value& value) {
    if constexpr (is_same_v<Value, bool>) {
        out += value ? "true" : "false";
    } else if constexpr (is_integral_v<Value>) {
        out += to_string(value);
    } else if constexpr (is_floating_point_v<Value>) {
        char shortest[64];
        if (isfinite(value)) out.append(shortest, to_chars(shortest, end(shortest), value).ptr);
        else out += "null";
    } else if constexpr (is_convertible_v<Value, string_view>) {
        write(out, string_view(value));
    } else if constexpr (requires { typename Value::mapped_type; }) {
        char before = '{';
        for (const auto& [key, item] : value) {
            out += exchange(before, ',');
            write(out, string_view(key));
            out += ':';
            write(out, item);
        }
        out += before == '{' ? "{}" : "}";
    } else {
        char before = '[';
        for (const typename Value::value_type& item : value) {
            out += exchange(before, ',');
            write(out, item);
        }
        out += before == '[' ? "[]" : "]";
    }
}
} // namespace cofferdam

// Calls a solution whose std::cout is `printed`, and adds the item of what it returned.
template <typename Call>
void RunTest(vector<string>& items, stringstream& printed, Call&& call) {
    auto start = chrono::steady_clock::now();
    auto value = call();
    chrono::duration<double> time = chrono::steady_clock::now() - start;
    string item = R"({"type":"result","value":)";
    cofferdam::write(item, value);
    item += R"(,"time":)";
    cofferdam::write(item, time.count());
    item += R"(,"output":)";
    cofferdam::write(item, printed.view());
    items.push_back(item + "}");
    printed.str("");
}

inline void SendError(vector<string>& items, const char* message) {
    string item = R"({"type":"error","value":)";
    cofferdam::write(item, string_view(message));
    items.push_back(item + "}");
}
