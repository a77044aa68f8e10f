// Numbers the lines of standard input, whatever that is: a pipe, a file, a terminal. Its flags stay as they are.
//
//     ls /usr/include | build/release/examples/hello_lines | head -3
#include <nowait/nowait.hpp>

#include <cstdio>
#include <string>
#include <system_error>

static nowait::task<std::error_code> number_lines() {
    auto input = nowait::standard_input();
    auto output = nowait::standard_output();
    if (!input || !output)
        co_return (input ? output.error() : input.error());
    nowait::line_reader lines(*input);
    nowait::buffered_writer numbered(*output);
    for (int number = 1;; ++number) {
        const auto line = co_await lines.next();
        if (!line)
            co_return line.error();
        if (!*line) // the end of the stream
            break;
        const std::string text = std::to_string(number) + '\t' + std::string(**line) + '\n';
        const auto accepted = co_await numbered.write(text);
        if (!accepted)
            co_return accepted.error(); // broken_pipe, if nobody reads any more: no signal
    }
    const auto closed = co_await numbered.close(); // all of it is out, or this says why not
    co_return (closed ? std::error_code{} : closed.error());
}

int main() {
    const auto ended = nowait::run(number_lines());
    const std::error_code error = ended ? *ended : ended.error();
    if (error)
        std::fprintf(stderr, "hello_lines: %s\n", error.message().c_str());
    return error ? 1 : 0;
}
