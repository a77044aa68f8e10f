// Numbers that are not a driver's to take.
#pragma once

#include <nowait/config.hpp>

#include <fcntl.h>
#include <unistd.h>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// A process may be started without its standard streams. Had a driver's descriptor one of their numbers, whoever asks for
/// standard input would get that instead of an error: as long as this lives, new numbers are above 2.
class standard_numbers {
public:
    standard_numbers() noexcept {
        for (int number = 0; number <= 2; ++number) {
            if (::fcntl(number, F_GETFD) >= 0)
                continue;
            const int got = ::open("/", O_PATH | O_CLOEXEC);
            if (got == number)
                taken_[number] = true;
            else if (got >= 0)
                ::close(got); // another thread was faster, the number is no longer free
        }
    }
    standard_numbers(const standard_numbers&) = delete;
    standard_numbers& operator=(const standard_numbers&) = delete;
    ~standard_numbers() {
        for (int number = 0; number <= 2; ++number) {
            if (taken_[number])
                ::close(number);
        }
    }

private:
    bool taken_[3] = {};
};

} // namespace detail
NOWAIT_END_NAMESPACE
