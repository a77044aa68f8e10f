#include <nowait/detail/page_pool.hpp>

#include <new>

NOWAIT_BEGIN_NAMESPACE
namespace detail {
namespace {

// Batches of page_pool::batch pages, linked through their first pages. Guarded by `lock`, which is only ever
// tried.
struct page_depot {
    real_sync::mutex lock;
    page* first = nullptr;
    std::uint32_t batches = 0;

    [[nodiscard]] bool put(page& head) noexcept {
        if (!lock.try_lock())
            return false;
        bool room = batches < page_pool::depot_batches_max;
        if (room) {
            head.next_batch = first;
            first = &head;
            ++batches;
        }
        lock.unlock();
        return room;
    }
    [[nodiscard]] page* get() noexcept {
        if (!lock.try_lock())
            return nullptr;
        page* head = first;
        if (head != nullptr) {
            first = head->next_batch;
            --batches;
        }
        lock.unlock();
        return head;
    }
};

constinit page_depot depot;

// Constant initialisation and a trivial destructor: usable at any time in a thread's life, its very end
// included.
constinit thread_local page_pool pool_of_this_thread;

page* allocate_page() noexcept {
    return new (std::nothrow) page;
}

void free_chain(page* p) noexcept {
    while (p != nullptr) {
        page* following = p->next;
        delete p;
        p = following;
    }
}

} // namespace

// Empties the pool when its thread ends, and leaves it unable to keep anything: a ring may still be destroyed
// by a later thread_local destructor.
struct page_pool::at_thread_exit {
    ~at_thread_exit() {
        page_pool& pool = pool_of_this_thread;
        pool.ended_ = true;
        pool.cached_limit_ = 0;
        pool.shrink_to(0);
    }
};

page_pool& page_pool::of_this_thread() noexcept {
    return pool_of_this_thread;
}

// True if this thread may keep pages: from its first need of the pool until it ends.
bool page_pool::begin() noexcept {
    if (cached_limit_ == 0 && !ended_) {
        static thread_local at_thread_exit registered;
        static_cast<void>(registered);
        cached_limit_ = cached_max;
    }
    return !ended_;
}

page* page_pool::take_one() noexcept {
    if (first_ == nullptr) {
        first_ = begin() ? depot.get() : nullptr;
        if (first_ == nullptr) {
            allocated.add();
            return allocate_page();
        }
        cached_ = batch;
    }
    recycled.add();
    page* p = first_;
    first_ = p->next;
    --cached_;
    return p;
}

bool page_pool::take(std::uint32_t count, page_list& into) noexcept {
    for (; count != 0; --count) {
        page* p = granted() ? take_one() : nullptr;
        if (p == nullptr)
            return false;
        into.push_back(*p);
    }
    return true;
}

void page_pool::give(page_list& pages) noexcept {
    while (page* p = pages.pop_front()) {
        p->next = first_;
        first_ = p;
        ++cached_;
    }
    // Half is kept, so that a thread at the limit does not visit the depot with every page.
    if (cached_ > cached_limit_ && (!begin() || cached_ > cached_limit_))
        shrink_to(cached_limit_ / 2);
}

void page_pool::shrink_to(std::uint32_t count) noexcept {
    while (cached_ > count) {
        std::uint32_t n = cached_ - count < batch ? cached_ - count : batch;
        page* head = first_;
        page* tail = head;
        for (std::uint32_t i = 1; i < n; ++i)
            tail = tail->next;
        first_ = tail->next;
        tail->next = nullptr;
        cached_ -= n;
        if (n != batch || !depot.put(*head))
            free_chain(head);
    }
}

void page_pool::trim() noexcept {
    free_chain(std::exchange(first_, nullptr));
    cached_ = 0;
    while (page* head = depot.get())
        free_chain(head);
}

void page_list::give_back() noexcept {
    page_pool::of_this_thread().give(*this);
}

} // namespace detail
NOWAIT_END_NAMESPACE
