// A task on another runtime than the one that started it.
//
// A journey stands between the frame and whoever waits for its end. It makes itself the frame's owner, so that to the loop where
// the frame is at the moment this is one more frame without a parent: no other code knows of journeys. It also is the frame's stop
// source, because a stop source is used on one thread at a time:
//
//      origin's thread                                   the thread where the frame is
//      parent, owner, the stop that was inherited        frame --owner--> journey, frame --stop--> journey's source
//              |                                                              ^
//              +--- outer hook: "asked", then a note by post -----------------+---- inner hook: that loop's own stop
//
// Each field below says on which thread it is used; what both use is under the lock. Between two threads the journey
// travels as a posted node, so that what one wrote the other sees.
#include <nowait/detail/frame_pool.hpp>
#include <nowait/detail/sync.hpp>
#include <nowait/resume_on.hpp>

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

class journey final : public frame_owner {
public:
    journey(promise_base& frame, void* outcome, outcome_failer fail_with) noexcept
        : frame_(&frame), outcome_(outcome), fail_(fail_with) {
        frame_ended = &has_ended;
        frame_abandoned = [](frame_owner& self) noexcept { static_cast<journey&>(self).end(true); };
        parcel_.of = note_.of = this;
        outer_.of = inner_.of = this;
        parcel_.run = note_.run = &run_posted;
        note_.invoke = [](posted_base& node) noexcept { static_cast<posted&>(node).of->hear(); };
        outer_.on_stop = [](stop_hook& hook) noexcept { static_cast<hook_of&>(hook).of->ask(); };
        inner_.on_stop = [](stop_hook& hook) noexcept {
            static_cast<hook_of&>(hook).of->source_.request_stop();
        };
    }
    journey(const journey&) = delete;
    journey& operator=(const journey&) = delete;

    static void* operator new(std::size_t size) { return frame_pool::allocate(size); }
    static void operator delete(void* memory) noexcept { frame_pool::deallocate(memory); }

    /// The journey that a frame is on, if any.
    [[nodiscard]] static journey* of(promise_base& frame) noexcept {
        frame_owner* const owner = frame.heir.second();
        return owner != nullptr && owner->frame_ended == &has_ended ? static_cast<journey*>(owner) : nullptr;
    }

    /// Takes the suspended frame off the loop where it is.
    void leave(loop& here) noexcept {
        if (origin_ == nullptr) {
            begin(here);
        } else {
            {
                lock_scope held(lock_);
                reachable_ = nullptr;
            }
            inner_.unlink();
            static_cast<list_node&>(*frame_).unlink();
            --here.live;
        }
        if (&here == origin_)
            ++here.away;
    }

    /// False: that loop has gone. Otherwise the frame belongs to its thread from here on. `error`: where the awaiter in the frame
    /// says how the move came out.
    [[nodiscard]] bool send(mailbox& to, int& error) noexcept {
        error_ = &error;
        parcel_.invoke = [](posted_base& node) noexcept {
            static_cast<posted&>(node).of->land(*loop::current());
        };
        return to.post(parcel_);
    }

    /// As arrive(), unless nobody will run the frame here: the loop ends, and had taken it in just before. Then it goes home, where
    /// it is waited for, and its awaiter hears the same as if the loop had refused it.
    void land(loop& here) noexcept {
        if (here.ending() && &here != origin_) {
            *error_ = ECANCELED;
            if (origin_box_->post(parcel_))
                return;
        }
        arrive(here);
    }

    /// Inside a node that the loop runs.
    void arrive(loop& here) noexcept {
        present_ = &here;
        if (&here == origin_)
            --here.away;
        frame_->home = &here;
        here.roots.push_back(*frame_);
        ++here.live;
        bool stop_now = here.stopped();
        {
            lock_scope held(lock_);
            reachable_ = &here.remote();
            stop_now |= asked_;
        }
        if (stop_now)
            source_.request_stop();
        else
            here.root_stop().add(inner_);
        here.next = frame_;
    }

    static void has_ended(frame_owner& self) noexcept { static_cast<journey&>(self).end(false); }

    ~journey() = default;

private:
    struct posted : posted_base {
        journey* of = nullptr;
    };
    struct hook_of : stop_hook {
        journey* of = nullptr;
    };

    void release() noexcept {
        // acq_rel: whoever deletes has seen the other's last access.
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1)
            delete this;
    }

    /// The first departure: takes the place of whoever waits for the frame.
    void begin(loop& here) noexcept {
        origin_ = &here;
        origin_box_ = &here.remote();
        origin_box_->acquire();
        parent_ = frame_->heir.first();
        owner_ = frame_->heir.second();
        frame_->heir.set(*this);
        if (parent_ != nullptr)
            parent_->awaits.clear();
        else
            static_cast<list_node&>(*frame_).unlink(); // still counted in `live`: run() waits for it
        outer_stop_ = std::exchange(frame_->stop, &source_);
        outer_stop_->add(outer_);
    }

    /// The stop of whoever started the task. On the origin's thread.
    void ask() noexcept {
        mailbox* to = nullptr;
        {
            lock_scope held(lock_);
            asked_ = true; // if the frame is under way, arrive() sees it
            to = reachable_;
            if (to != nullptr) {
                to->acquire();
                references_.fetch_add(1, std::memory_order_relaxed);
            }
        }
        if (to == nullptr)
            return;
        if (!to->post(note_))
            release();
        to->release();
    }

    /// The note has come to a loop; perhaps the frame is no longer there.
    void hear() noexcept {
        bool here = false;
        {
            lock_scope held(lock_);
            here = reachable_ == &loop::current()->remote();
        }
        // It cannot leave meanwhile: it would do that on this thread.
        if (here)
            source_.request_stop();
        release();
    }

    /// The frame is no more: it has ended, or its present loop is being destroyed.
    void end(bool abandoned) noexcept {
        {
            lock_scope held(lock_);
            reachable_ = nullptr;
        }
        inner_.unlink();
        abandoned_ = abandoned;
        if (present_ == origin_) {
            if (abandoned)
                origin_goes();
            else
                come_home();
            return;
        }
        parcel_.invoke = [](posted_base& node) noexcept {
            journey& self = *static_cast<posted&>(node).of;
            --self.origin_->away;
            self.come_home();
        };
        // Refused: the origin has given up waiting, and left for good what belongs to it: this too, because its hook is in there.
        (void)origin_box_->post(parcel_);
    }

    /// On the origin's thread, with the loop's `next` slot free.
    void come_home() noexcept {
        outer_.unlink();
        origin_box_->release();
        if (abandoned_ && (parent_ != nullptr || owner_->frame_abandoned == nullptr))
            fail_(outcome_, std::make_exception_ptr(
                                std::system_error(std::make_error_code(std::errc::operation_canceled),
                                                  "the runtime that the task had moved to was destroyed")));
        loop& home = *origin_;
        promise_base* const parent = parent_;
        frame_owner* const owner = owner_;
        const bool tell_abandoned = abandoned_;
        release();
        if (parent != nullptr) {
            home.next = parent;
            return;
        }
        --home.live;
        if (tell_abandoned && owner->frame_abandoned != nullptr)
            owner->frame_abandoned(*owner);
        else
            owner->frame_ended(*owner);
    }

    /// The origin is being destroyed, and the frame was on it. Its parent goes the same way.
    void origin_goes() noexcept {
        outer_.unlink();
        origin_box_->release();
        frame_owner* const owner = parent_ == nullptr ? owner_ : nullptr;
        release();
        if (owner != nullptr && owner->frame_abandoned != nullptr)
            owner->frame_abandoned(*owner);
    }

    // Where the frame is; handed on with it.
    promise_base* frame_;
    loop* present_ = nullptr;
    int* error_ = nullptr; // in the frame
    inplace_stop_source source_;
    hook_of inner_;
    posted parcel_;
    bool abandoned_ = false;

    // On the origin's thread. The outcome is written where the frame runs, and read here later.
    loop* origin_ = nullptr;
    mailbox* origin_box_ = nullptr;
    promise_base* parent_ = nullptr;
    frame_owner* owner_ = nullptr;
    inplace_stop_source* outer_stop_ = nullptr;
    hook_of outer_;
    void* outcome_;
    outcome_failer fail_;

    // Both.
    real_sync::mutex lock_;
    mailbox* reachable_ = nullptr; // of the loop where the frame is; null while it travels, and after its end
    bool asked_ = false;
    posted note_;
    real_sync::atomic<unsigned> references_{1}; // the journey itself, and the note while it is posted
};

resume_on_awaiter::resume_on_awaiter(promise_base& frame, resume_on_description to, void* outcome,
                                     outcome_failer fail_with, std::source_location where) noexcept
    : frame_(frame), to_(to.to), outcome_(outcome), fail_(fail_with), where_(where) {
    to_->acquire();
}

resume_on_awaiter::~resume_on_awaiter() {
    to_->release();
    delete fresh_; // of a frame that was destroyed before it could leave
}

bool resume_on_awaiter::await_ready() noexcept {
    if (frame_.stop->stop_requested()) {
        error_ = ECANCELED;
        return true;
    }
    if (to_ == &frame_.home->remote())
        return true;
    if (outcome_ == nullptr) { // whoever owns the frame has no memory for what comes from elsewhere
        error_ = ENOMEM;
        return true;
    }
    if (journey::of(frame_) == nullptr) {
        try {
            fresh_ = new journey(frame_, outcome_, fail_);
        } catch (const std::bad_alloc&) {
            error_ = ENOMEM;
            return true;
        }
    }
    return false;
}

void resume_on_awaiter::await_suspend(std::coroutine_handle<>) noexcept {
    frame_.where = where_;
    run = &depart;
    frame_.home->post(*this);
}

void resume_on_awaiter::depart(ready_node& node) noexcept {
    auto& self = static_cast<resume_on_awaiter&>(node);
    promise_base& frame = self.frame_;
    loop& here = *frame.home;
    if (frame.stop->stop_requested()) {
        self.error_ = ECANCELED;
        here.next = &frame;
        return;
    }
    journey* const on = self.fresh_ != nullptr ? std::exchange(self.fresh_, nullptr) : journey::of(frame);
    on->leave(here);
    if (on->send(*self.to_, self.error_))
        return; // and the frame is not ours any more
    self.error_ = ECANCELED;
    on->arrive(here);
}

} // namespace detail
NOWAIT_END_NAMESPACE
