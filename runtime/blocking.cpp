// The operation behind blocking(): from the loop to a worker and back.
#include <nowait/blocking.hpp>

#include <cerrno>

NOWAIT_BEGIN_NAMESPACE
namespace detail {

namespace {

/// The mailbox that a worker has posted to last. It stays valid although its loop may end as soon as it has the last post: a
/// reference for each job would cost two atomic instructions, and most jobs come from the same loop.
class kept_mailbox {
public:
    void keep(mailbox* box) noexcept {
        if (box == box_)
            return;
        box->acquire();
        if (box_ != nullptr)
            box_->release();
        box_ = box;
    }
    [[nodiscard]] bool is(const mailbox* box) const noexcept { return box == box_; }
    ~kept_mailbox() {
        if (box_ != nullptr)
            box_->release();
    }

private:
    mailbox* box_ = nullptr;
};
thread_local kept_mailbox kept;

} // namespace

blocking_job_base::blocking_job_base(const blocking_traits& how) noexcept {
    account = how.account;
    keyed = how.keyed;
    key = how.key;
    parallel = how.parallel;
    interruptible = how.interruptible;
    abandonable = how.abandonable;
    rationed = how.rationed;
    wake.of = this;
}

void blocking_job_base::tell_end(pool_job& raw, int code) noexcept {
    // The operation waits for this, or, in its destructor, for the pool's release: its loop is there until the post.
    auto& self = static_cast<blocking_job_base&>(raw);
    self.error = code;
    mailbox* const to = self.box;
    const bool own_reference = self.abandonable;
    const bool safe = kept.is(to);
    if (!safe)
        to->acquire();
    (void)to->post(self.wake); // refused: the loop is going, and its operation looks after the job
    if (!safe)
        to->release();
    if (own_reference)
        to->release();
}

bool blocking_job_base::let_go(pool_job& raw) noexcept {
    auto& self = static_cast<blocking_job_base&>(raw);
    switch (self.holders_.exchange(pool_has_left, std::memory_order_acq_rel)) {
    case operation_has_left:
        self.destroy_(self);
        return false;
    case operation_waits:
        return true;
    default:
        return false;
    }
}

void blocking_job_base::keep_mailbox() const noexcept {
    if (!abandonable) // its operation may have gone, and the loop too
        kept.keep(box);
}

bool blocking_operation_base::may_start() noexcept {
    if (stop_requested())
        error_ = ECANCELED;
    return error_ == 0;
}

bool blocking_operation_base::submit(blocking_job_base* job) noexcept {
    job_ = job;
    pool_ = how_.pool != nullptr ? how_.pool : pool_of(home());
    if (job == nullptr || pool_ == nullptr) {
        error_ = ENOMEM;
        return true;
    }
    job->operation = this;
    job->wake.run = [](ready_node& node) noexcept {
        static_cast<blocking_job_base::wake_node&>(node).of->operation->told();
    };
    job->box = &home().remote();
    if (job->abandonable)
        job->box->acquire();
    error_ = submit_job(*pool_, *job);
    if (error_ != 0) {
        if (job->abandonable)
            job->box->release();
        job->taken_back();
        return true;
    }
    home().counters_of(operation_kind::blocking).punted.add();
    waiting_ = true;
    place_.outwait = [](work_in_pool& place, clock::time_point deadline) noexcept {
        return static_cast<embedded_place&>(place).of->outwait(deadline);
    };
    home().in_pool.push_back(place_);
    listen_for_stop(
        [](stop_hook& hook) noexcept { static_cast<blocking_operation_base&>(from_hook(hook)).cancel(); });
    return false;
}

void blocking_operation_base::told() noexcept {
    waiting_ = false;
    static_cast<list_node&>(place_).unlink();
    stop_interrupting();
    error_ = job_->error;
    complete();
}

/// True: the end will not be told, and the job is ours alone (or its worker's, which has been told so).
bool blocking_operation_base::take_back() noexcept {
    if (cancel_job(*pool_, *job_))
        job_->taken_back();
    else if (!job_->abandonable || !job_->claim_end())
        return false;
    waiting_ = false;
    static_cast<list_node&>(place_).unlink();
    if (job_->abandonable)
        job_->box->release();
    return true;
}

void blocking_operation_base::cancel() noexcept {
    if (!waiting_ || interrupting_)
        return;
    if (take_back()) {
        error_ = ECANCELED;
        complete_later();
    } else if (job_->interruptible) {
        interrupting_ = true;
        timer_.on_expiry = [](timer_node& node) noexcept {
            static_cast<embedded_timer&>(node).of->interrupt_again();
        };
        timer_.deadline = home().calls().now() + backoff_.next();
        home().add_timer(timer_);
    }
}

void blocking_operation_base::interrupt_again() noexcept {
    (void)cancel_job(*pool_, *job_);
    timer_.deadline = home().calls().now() + backoff_.next();
    home().add_timer(timer_);
}

void blocking_operation_base::stop_interrupting() noexcept {
    if (std::exchange(interrupting_, false))
        home().remove_timer(timer_);
}

/// What the function refers to is about to go, so it must be over.
bool blocking_operation_base::outwait(clock::time_point deadline) noexcept {
    stop_interrupting();
    if (take_back())
        return true;
    const bool over = outwait_job(
        *pool_, *job_,
        [](pool_job& raw) noexcept { return static_cast<blocking_job_base&>(raw).await_pool(); }, deadline);
    if (over) {
        waiting_ = false;
        static_cast<list_node&>(place_).unlink();
    }
    return over;
}

blocking_operation_base::~blocking_operation_base() {
    if (waiting_) [[unlikely]] {
        if (home().forked())
            return; // its workers stayed with the parent
        (void)outwait(clock::time_point::max());
    }
    if (job_ != nullptr)
        job_->leave();
    if (how_.pool != nullptr)
        release_pool(*how_.pool);
}

} // namespace detail
NOWAIT_END_NAMESPACE
