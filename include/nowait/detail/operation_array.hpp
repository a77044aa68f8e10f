// Operations of one type, as many as there are at run time, in one piece of memory.
#pragma once

#include <nowait/config.hpp>
#include <nowait/task.hpp>

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

/// What a description of many parts carries: the parts, and the memory for their operations. It is had here, where running out
/// of it is an exception of the caller, and not where the await begins.
template <class A>
class operation_sources {
public:
    using operation = operation_for_t<A>;

    explicit operation_sources(std::vector<A>&& parts) : parts_(std::move(parts)) {
        if (!parts_.empty())
            memory_ = std::allocator<operation>().allocate(parts_.size());
    }
    operation_sources(operation_sources&& other) noexcept
        : parts_(std::move(other.parts_)), memory_(std::exchange(other.memory_, nullptr)) {}
    operation_sources& operator=(operation_sources&&) = delete;
    ~operation_sources() {
        if (memory_ != nullptr)
            std::allocator<operation>().deallocate(memory_, parts_.size());
    }
    [[nodiscard]] std::size_t size() const noexcept { return parts_.size(); }

private:
    template <class>
    friend class operation_array;
    std::vector<A> parts_;
    operation* memory_ = nullptr;
};

template <class A>
class operation_array {
public:
    using operation = operation_for_t<A>;

    explicit operation_array(operation_sources<A>&& from) noexcept
        : operations_(std::exchange(from.memory_, nullptr)), size_(from.parts_.size()) {
        for (std::size_t i = 0; i < size_; ++i)
            ::new (static_cast<void*>(operations_ + i)) operation(std::move(from.parts_[i]));
    }
    operation_array(const operation_array&) = delete;
    operation_array& operator=(const operation_array&) = delete;
    ~operation_array() {
        for (std::size_t i = size_; i-- > 0;)
            operations_[i].~operation();
        if (operations_ != nullptr)
            std::allocator<operation>().deallocate(operations_, size_);
    }

    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] operation& operator[](std::size_t i) noexcept { return operations_[i]; }
    [[nodiscard]] std::size_t index_of(const operation& one) const noexcept {
        return static_cast<std::size_t>(&one - operations_);
    }

private:
    operation* operations_;
    std::size_t size_;
};

} // namespace detail
NOWAIT_END_NAMESPACE
