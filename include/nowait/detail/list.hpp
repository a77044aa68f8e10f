// Intrusive lists. The nodes live in frames and blocks; a list owns nothing and allocates nothing.
#pragma once

#include <nowait/config.hpp>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// A link of a doubly linked ring. Unlinked, it points to itself, so unlinking twice is harmless.
struct list_node {
    list_node* before;
    list_node* after;

    list_node() noexcept : before(this), after(this) {}
    struct unset {};
    /// A node that is linked before anything else is asked of it.
    explicit list_node(unset) noexcept {}
    list_node(const list_node&) = delete;
    list_node& operator=(const list_node&) = delete;

    [[nodiscard]] bool linked() const noexcept { return after != this; }

    void unlink() noexcept {
        before->after = after;
        after->before = before;
        before = after = this;
    }
    /// For a node that dies next.
    void unlink_for_good() noexcept {
        before->after = after;
        after->before = before;
    }
    void link_before(list_node& position) noexcept {
        before = position.before;
        after = &position;
        before->after = this;
        position.before = this;
    }
};

/// A FIFO of nodes that can leave from the middle. `T` derives from list_node.
template <class T>
class list {
public:
    [[nodiscard]] bool empty() const noexcept { return !head_.linked(); }
    [[nodiscard]] T& front() const noexcept { return static_cast<T&>(*head_.after); }
    [[nodiscard]] T& back() const noexcept { return static_cast<T&>(*head_.before); }
    void push_back(T& node) noexcept { static_cast<list_node&>(node).link_before(head_); }
    void push_front(T& node) noexcept { static_cast<list_node&>(node).link_before(*head_.after); }
    T& pop_front() noexcept {
        T& node = front();
        static_cast<list_node&>(node).unlink();
        return node;
    }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (list_node* at = head_.after; at != &head_;) {
            list_node* following = at->after;
            visit(static_cast<T&>(*at));
            at = following;
        }
    }

private:
    list_node head_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
