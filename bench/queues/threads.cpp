#include "threads.hpp"

#include <barrier>
#include <ctime>
#include <thread>
#include <vector>

#include <sched.h>

namespace bench::queues {
namespace {

std::chrono::nanoseconds process_time() {
    timespec now{};
    require(::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now) == 0, "clock_gettime");
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// The CPUs that this process may use, from the last one down.
std::vector<int> usable_cpus() {
    cpu_set_t set;
    CPU_ZERO(&set);
    require(::sched_getaffinity(0, sizeof set, &set) == 0, "sched_getaffinity");
    std::vector<int> cpus;
    for (int cpu = CPU_SETSIZE - 1; cpu >= 0; --cpu) {
        if (CPU_ISSET(cpu, &set)) {
            cpus.push_back(cpu);
        }
    }
    return cpus;
}

void pin_this_thread(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    require(::sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

} // namespace

company::company() : sleeper_([this] { over_.wait(false); }) {}

company::~company() {
    over_ = true;
    over_.notify_one();
    sleeper_.join();
}

measurement on_two_threads(bool two_cpus, std::size_t messages, cpu_time& used,
                           const std::function<void()>& first, const std::function<void()>& second) {
    const std::vector<int> cpus = usable_cpus();
    const int other = two_cpus && cpus.size() > 1 ? cpus[1] : cpus[0];
    std::barrier<> line(3);
    const auto runs = [&line](int cpu, const std::function<void()>& what) {
        pin_this_thread(cpu);
        line.arrive_and_wait();
        what();
        line.arrive_and_wait();
    };
    std::thread a([&] { runs(cpus[0], first); });
    std::thread b([&] { runs(other, second); });
    line.arrive_and_wait();
    const stopwatch clock;
    const auto before = process_time();
    line.arrive_and_wait();
    const measurement result{messages, clock.elapsed()};
    used.spent += process_time() - before;
    used.messages += messages;
    a.join();
    b.join();
    return result;
}

} // namespace bench::queues
