// What went wrong elsewhere, each with its fact: it does not go wrong here.
#include "queue_support.hpp"

#include <fstream>
#include <map>
#include <set>
#include <thread>

#include <sched.h>
#include <sys/mount.h>

namespace queues {
namespace {

using nowait::explain;
using nowait::subject;

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

std::string proc_value(const std::string& name) {
    std::ifstream file("/proc/sys/fs/mqueue/" + name);
    std::string value;
    std::getline(file, value);
    return value;
}

bool set_proc_value(const std::string& name, const std::string& value) {
    std::ofstream file("/proc/sys/fs/mqueue/" + name);
    file << value << std::flush;
    return file.good();
}

/// Queues of a namespace of this process's own, where limits can be changed and files be seen.
bool have_own_queues() {
    return ::unshare(CLONE_NEWIPC) == 0;
}

int out_of_queue_bytes() {
    if (!become_nobody(64331))
        return not_allowed;
    posix_mqueue_options options;
    options.how = mqueue_open::create;
    std::vector<owned_posix_mqueue> queues;
    int error = 0;
    while (error == 0 && queues.size() < 1000) {
        auto made = owned_posix_mqueue::open(fresh_name(), options);
        error = error_of(made);
        if (made)
            queues.push_back(std::move(*made));
    }
    CHILD_REQUIRE(error == EMFILE);
    const std::string why = explain({error, std::generic_category()}, subject::posix_queue);
    CHILD_REQUIRE(has(why, "RLIMIT_MSGQUEUE"));
    rlimit limit{};
    CHILD_REQUIRE(::getrlimit(RLIMIT_MSGQUEUE, &limit) == 0);
    CHILD_REQUIRE(has(why, std::to_string(limit.rlim_cur)));

    // What is closed and unlinked is free again, and small queues are many.
    const std::size_t big = queues.size();
    queues.clear();
    options.capacity = 1;
    options.message_bytes = 16;
    for (std::size_t i = 0; i < 4 * big && i < 100; ++i) {
        auto made = owned_posix_mqueue::open(fresh_name(), options);
        CHILD_REQUIRE(made.has_value());
        queues.push_back(std::move(*made));
    }
    queues.clear();

    options.capacity = std::stoul(proc_value("msg_max")) + 1;
    const auto too_deep = owned_posix_mqueue::open(fresh_name(), options);
    CHILD_REQUIRE(error_of(too_deep) == EINVAL);
    const std::string limits = explain(too_deep.error(), subject::posix_queue);
    CHILD_REQUIRE(has(limits, "/proc/sys/fs/mqueue/msg_max is " + proc_value("msg_max")));
    CHILD_REQUIRE(has(limits, "/proc/sys/fs/mqueue/msgsize_max is " + proc_value("msgsize_max")));
    return 0;
}

int too_many_queues() {
    if (!have_own_queues() || !set_proc_value("queues_max", "3") || !become_nobody(64332))
        return not_allowed;
    std::vector<owned_posix_mqueue> queues;
    for (int i = 0; i < 3; ++i) {
        auto made = owned_posix_mqueue::open(fresh_name(), small());
        CHILD_REQUIRE(made.has_value());
        queues.push_back(std::move(*made));
    }
    const auto one_too_many = owned_posix_mqueue::open(fresh_name(), small());
    CHILD_REQUIRE(error_of(one_too_many) == ENOSPC);
    CHILD_REQUIRE(
        has(explain(one_too_many.error(), subject::posix_queue), "/proc/sys/fs/mqueue/queues_max is 3"));
    return 0;
}

int lowered_limits() {
    if (!have_own_queues())
        return not_allowed;
    const auto before = owned_posix_mqueue::open(fresh_name(), small(8));
    CHILD_REQUIRE(before.has_value());
    if (!set_proc_value("msg_max", "2") || !set_proc_value("msgsize_max", "128") || !become_nobody(64333))
        return not_allowed;
    // What is there stays as it is.
    for (int i = 0; i < 8; ++i)
        CHILD_REQUIRE(before->try_send("x").has_value());
    // What is new has the new limits, also where it leaves one of them to the system.
    const auto deep = owned_posix_mqueue::open(fresh_name(), small(3));
    CHILD_REQUIRE(error_of(deep) == EINVAL);
    CHILD_REQUIRE(has(explain(deep.error(), subject::posix_queue), "/proc/sys/fs/mqueue/msg_max is 2"));
    posix_mqueue_options options = small(2);
    options.message_bytes = 129;
    CHILD_REQUIRE(error_of(owned_posix_mqueue::open(fresh_name(), options)) == EINVAL);
    options.message_bytes = 0;
    const auto by_default = owned_posix_mqueue::open(fresh_name(), options);
    CHILD_REQUIRE(by_default.has_value());
    CHILD_REQUIRE(by_default->attributes()->message_bytes == 128);
    options.capacity = 0;
    CHILD_REQUIRE(owned_posix_mqueue::open(fresh_name(), options).has_value());
    return 0;
}

int lowered_quota() {
    if (!become_nobody(64334))
        return not_allowed;
    auto kept = owned_posix_mqueue::open(fresh_name(), small(8));
    CHILD_REQUIRE(kept.has_value());
    const rlimit none{0, 0};
    CHILD_REQUIRE(::setrlimit(RLIMIT_MSGQUEUE, &none) == 0);
    const auto refused = owned_posix_mqueue::open(fresh_name(), small(8));
    CHILD_REQUIRE(error_of(refused) == EMFILE);
    CHILD_REQUIRE(has(explain(refused.error(), subject::posix_queue), "0 bytes together (RLIMIT_MSGQUEUE"));
    for (int i = 0; i < 8; ++i)
        CHILD_REQUIRE(kept->try_send("x").has_value());
    CHILD_REQUIRE(posix_mqueue::open(kept->name()).has_value()); // opening costs nothing
    return 0;
}

int not_permitted(const std::string& name) {
    if (!become_nobody(64335))
        return not_allowed;
    const auto refused = posix_mqueue::open(name);
    CHILD_REQUIRE(error_of(refused) == EACCES);
    CHILD_REQUIRE(has(explain(refused.error(), subject::posix_queue), "permissions"));
    CHILD_REQUIRE(error_of(posix_mqueue::unlink(name)) == EACCES);
    return 0;
}

int out_of_descriptors() {
    auto queue = owned_posix_mqueue::open(fresh_name(), small());
    CHILD_REQUIRE(queue.has_value());
    const std::string name = queue->name();
    rlimit few{};
    CHILD_REQUIRE(::getrlimit(RLIMIT_NOFILE, &few) == 0);
    const rlim_t enough = std::exchange(few.rlim_cur, 3);
    CHILD_REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    const auto refused = posix_mqueue::open(queue->name());
    CHILD_REQUIRE(error_of(refused) == EMFILE);
    CHILD_REQUIRE(error_of(queue->notify()) == EMFILE);
    CHILD_REQUIRE(
        has(explain(refused.error(), subject::posix_queue), "may have 3 descriptors (RLIMIT_NOFILE"));
    queue = result<owned_posix_mqueue>(); // takes the name away all the same
    few.rlim_cur = enough;
    CHILD_REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    CHILD_REQUIRE(error_of(posix_mqueue::open(name)) == ENOENT);
    return 0;
}

/// What a process does that is killed twenty times: with its own namespace, so that it can be counted.
int killed_and_restarted() {
    if (!have_own_queues())
        return not_allowed;
    const bool lists = ::unshare(CLONE_NEWNS) == 0 &&
                       ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                       ::mount("mqueue", "/mnt", "mqueue", 0, nullptr) == 0;
    for (const mqueue_open how : {mqueue_open::create_or_open, mqueue_open::replace}) {
        for (int i = 0; i < 20; ++i) {
            posix_mqueue_options options = small();
            options.how = how;
            other_process crashes([&] {
                const auto queue = owned_posix_mqueue::open("/survivor", options);
                if (!queue || !queue->try_send("left behind"))
                    return 1;
                ::raise(SIGKILL);
                return 2;
            });
            CHILD_REQUIRE(crashes.wait() == 128 + SIGKILL);
            const auto seen = posix_mqueue::open("/survivor");
            CHILD_REQUIRE(seen.has_value());
            const std::size_t expected =
                how == mqueue_open::replace ? 1 : std::min<std::size_t>(static_cast<std::size_t>(i) + 1, 7);
            CHILD_REQUIRE(seen->attributes()->messages == expected);
            buffer room;
            if (expected == 7) // full would be another test
                CHILD_REQUIRE(seen->try_receive(room).has_value());
            if (lists) {
                const auto names = posix_mqueue::list();
                CHILD_REQUIRE((names && *names == std::vector<std::string>{"/survivor"}));
            }
        }
    }
    posix_mqueue_options again = small();
    again.how = mqueue_open::create_or_open;
    {
        const auto owner = owned_posix_mqueue::open("/survivor", again);
        CHILD_REQUIRE(owner.has_value());
    }
    CHILD_REQUIRE(error_of(posix_mqueue::open("/survivor")) == ENOENT);
    if (lists) {
        const auto names = posix_mqueue::list();
        CHILD_REQUIRE((names && names->empty()));
    }
    return lists ? 0 : not_allowed;
}

int lists_names() {
    if (!have_own_queues() || ::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        return not_allowed;
    while (::umount("/dev/mqueue") == 0) {
    }
    const auto hidden = posix_mqueue::list();
    CHILD_REQUIRE(error_of(hidden) == ENOTSUP);
    CHILD_REQUIRE(has(explain(hidden.error(), subject::posix_queue), "mqueue file system"));
    char place[] = "/tmp/nowait queues XXXXXX"; // mountinfo writes spaces in another way
    CHILD_REQUIRE(::mkdtemp(place) != nullptr);
    if (::mount("mqueue", place, "mqueue", 0, nullptr) != 0)
        return not_allowed;
    const auto one = owned_posix_mqueue::open("/one", small());
    const auto two = owned_posix_mqueue::open("/two", small());
    const auto names = posix_mqueue::list();
    ::umount2(place, MNT_DETACH);
    ::rmdir(place);
    CHILD_REQUIRE((names && std::set<std::string>(names->begin(), names->end()) ==
                                std::set<std::string>{"/one", "/two"}));
    return 0;
}

task<> message_sizes(const posix_mqueue& queue) {
    const std::string text(129, 'x');
    buffer room;
    for (const std::size_t size : {std::size_t{10}, std::size_t{128}}) {
        auto done = co_await queue.send(std::string_view(text).substr(0, size));
        CHECK(done);
    }
    auto done = co_await queue.send(text);
    CHECK(error_of(done) == EMSGSIZE);
    auto got = co_await queue.receive(std::span(room).first(64));
    CHECK(shown(got) == "error " + std::to_string(EMSGSIZE));
    CHECK(queue.attributes()->messages == 2);
    got = co_await queue.receive(room);
    CHECK((got && got->value.size() == 10));
    auto owned = co_await queue.receive();
    CHECK((owned && owned->value.size() == 128));
}

task<int> keep_sending(const posix_mqueue& queue, int count) {
    for (int i = 0; i < count; ++i) {
        auto done = co_await queue.send("work");
        if (!done)
            co_return error_of(done);
    }
    co_return 0;
}

/// Everything the queue may hold, in the order that the kernel and the channel give it out.
task<> same_order_as_in_process(const posix_mqueue& queue, int count) {
    const auto channel = nowait::mqueue_channel<std::string>::create({.capacity = 10});
    buffer room;
    int differences = 0;
    std::map<unsigned, int> last;
    for (int i = 0; i < count;) {
        for (int j = 0; j < 10; ++j, ++i) {
            std::string text = std::to_string(i);
            auto done = co_await queue.send(text, i % 4);
            auto pushed = co_await channel->send(text, i % 4);
            differences += !done || !pushed;
        }
        unsigned before = 4;
        for (int j = 0; j < 10; ++j) {
            auto got = co_await queue.receive(room);
            auto popped = co_await channel->receive();
            if (!got || !popped) {
                ++differences;
                continue;
            }
            const int number = std::stoi(text_of(got->value));
            differences += popped->value != text_of(got->value) || popped->priority != got->priority;
            differences += got->priority > before;                                       // highest first
            differences += last.contains(got->priority) && number < last[got->priority]; // FIFO inside one
            before = got->priority;
            last[got->priority] = number;
        }
    }
    CHECK(differences == 0);
}

task<> send_numbers(const posix_mqueue& queue, char who, int count) {
    for (int i = 0; i < count; ++i) {
        auto done = co_await queue.send(who + std::to_string(i), i % 4);
        if (!done)
            co_return;
    }
}

/// One receiver of several sees each sender's messages of one priority in their order.
task<> receive_numbers(const posix_mqueue& queue, int& total, int all, int& disorder) {
    std::map<std::pair<char, unsigned>, int> last;
    buffer room;
    while (total < all) {
        auto got = co_await nowait::with_timeout(queue.receive(room), 5ms);
        if (!got)
            continue; // the others may have had the last ones
        ++total;
        const std::string text = text_of(got->value);
        int& before = last.try_emplace({text[0], got->priority}, -1).first->second;
        disorder += std::stoi(text.substr(1)) <= before;
        before = std::stoi(text.substr(1));
    }
}

task<> concurrent_order(const posix_mqueue& queue) {
    std::vector<nowait::join_handle<void>> tasks;
    int total = 0;
    int disorder = 0;
    constexpr int each = 400;
    for (const char who : {'a', 'b', 'c'})
        tasks.push_back(nowait::spawn(send_numbers(queue, who, each)));
    for (int i = 0; i < 3; ++i)
        tasks.push_back(nowait::spawn(receive_numbers(queue, total, 3 * each, disorder)));
    for (auto& one : tasks)
        (void)co_await one.join();
    CHECK(total == 3 * each);
    CHECK(disorder == 0);
}

task<int> forks_while_waiting(const owned_posix_mqueue& queue, const posix_mqueue& mine) {
    received out;
    auto waiting = nowait::spawn(receive_into(mine, out));
    co_await settle();
    auto notice = queue.notify();
    if (!notice)
        co_return 1;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        // Everything that a child may do to the objects it inherited.
        nowait::mqueue_notification gone = std::move(*notice);
        gone.cancel();
        posix_mqueue& same = const_cast<posix_mqueue&>(mine);
        same = posix_mqueue();
        owned_posix_mqueue& owner = const_cast<owned_posix_mqueue&>(queue);
        const bool refused = error_of(owner.unlink()) == EPERM;
        owner = owned_posix_mqueue();
        ::_exit(refused ? 0 : 3);
    }
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        co_return 4;
    if (!posix_mqueue::open(
            queue.name())) // the name is the parent's to take away. (This closes one: the kernel's rule.)
        co_return 5;
    auto told = co_await notice->arrived();
    if (error_of(told) != EIDRM) // by our own close above, not by the child
        co_return 6;
    if (!queue.try_send("x"))
        co_return 7;
    (void)co_await waiting.join();
    co_return out.what == "0:x" ? 0 : 8;
}

} // namespace

TEST_CASE("the quota of queue bytes is named, and so are the limits under /proc") {
    check_child(in_child(out_of_queue_bytes));
}

TEST_CASE("too many queues name queues_max") {
    check_child(in_child(too_many_queues));
}

TEST_CASE("a queue of somebody else's, and no descriptor left, are said as they are") {
    const auto queue = make_queue();
    check_child(in_child([&] { return not_permitted(queue.name()); }));
    check_child(in_child(out_of_descriptors));
}

TEST_CASE("queues of killed processes are reopened or replaced, and can be listed") {
    check_child(in_child(killed_and_restarted));
}

TEST_CASE("names are listed where a file system shows them, and nowhere else") {
    check_child(in_child(lists_names));
}

TEST_CASE("message sizes: nothing is cut off, nothing is lost") {
    const auto queue = make_queue();
    run_on_new(message_sizes(queue));
}

TEST_CASE("a consumer killed at any moment stops nobody") {
    const auto queue = make_queue(4);
    constexpr int kills = 200;
    for (int i = 0; i < kills; ++i) {
        const other_process consumer([&] {
            const mqd_t number = ::mq_open(queue.name().c_str(), O_RDONLY);
            std::array<char, message_bytes> room;
            while (::mq_receive(number, room.data(), room.size(), nullptr) > 0) {
            }
            return 1;
        });
        // While it lives it takes messages; the full queue is the only thing that may hold the producer up.
        CHECK(run_on_new(keep_sending(queue, 6 + i % 7)) == 0);
        consumer.kill();
    }
    buffer room;
    while (queue.try_receive(room)) {
    }
    CHECK(queue.try_send("the queue is in order"));
}

TEST_CASE("sizes that overflow are refused, in the kernel's queue and in ours") {
    const auto kernel = [](std::size_t capacity, std::size_t bytes) {
        posix_mqueue_options options = small();
        options.capacity = capacity;
        options.message_bytes = bytes;
        return error_of(owned_posix_mqueue::open(fresh_name(), options));
    };
    constexpr std::size_t huge = std::size_t{1} << 33;
    CHECK(kernel(huge, huge) == EINVAL);
    CHECK(kernel(huge, 1) == EINVAL);
    CHECK(kernel(1, huge) == EINVAL);
    CHECK(kernel(std::size_t{1} << 63, std::size_t{1} << 63) == EINVAL);

    const auto ours = [](std::size_t capacity) {
        return error_of(nowait::mqueue_channel<int>::create({.capacity = capacity}));
    };
    CHECK(ours(0) == EINVAL);
    CHECK((ours(SIZE_MAX) == EINVAL || ours(SIZE_MAX) == ENOMEM));
}

TEST_CASE("the real error arrives, whatever was called in between") {
    posix_mqueue_options too_deep = small(1'000'000);
    errno = ENOENT;
    CHECK(error_of(posix_mqueue::open(fresh_name(), too_deep)) == EINVAL);
    errno = 0;
    CHECK(error_of(posix_mqueue::open("noslash", small())) == EINVAL);
    CHECK(error_of(posix_mqueue::open("/" + std::string(256, 'x'), small())) == ENAMETOOLONG);
    CHECK(error_of(posix_mqueue::open(fresh_name())) == ENOENT);
}

TEST_CASE("the kernel's queue and the one in process give the same order") {
    const auto queue = make_queue(10);
    run_on_new(same_order_as_in_process(queue, 10'000));
}

TEST_CASE("concurrent senders and receivers see each sender's messages in order") {
    const auto queue = make_queue(4);
    run_on_new(concurrent_order(queue));
}

TEST_CASE("limits lowered under a queue leave it alone, and new ones hear of them") {
    check_child(in_child(lowered_limits));
}

TEST_CASE("a quota lowered under a queue leaves it alone") {
    check_child(in_child(lowered_quota));
}

TEST_CASE("a child that takes everything apart leaves the parent's queue alone") {
    const auto queue = make_queue();
    const posix_mqueue mine = reopen(queue);
    CHECK(run_on_new(forks_while_waiting(queue, mine)) == 0);
}

TEST_CASE("a runtime made before a fork says so in the child, and a new one works there") {
    const auto queue = make_queue();
    auto runs = make_runtime();
    CHECK(runs.run(settle(1)));
    check_child(in_child([&] {
        const auto refused = runs.run(settle(1));
        CHILD_REQUIRE(!refused.has_value());
        const auto again = posix_mqueue::open(queue.name());
        CHILD_REQUIRE(again.has_value());
        const auto sent = nowait::run(keep_sending(*again, 3));
        CHILD_REQUIRE((sent && *sent == 0));
        return 0;
    }));
    CHECK(runs.run(settle(1)));
    CHECK(queue.attributes()->messages == 3);
}

} // namespace queues
