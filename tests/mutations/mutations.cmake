# Copies of library sources with faults in them, each behind a switch that is off at first: the property suite has to catch every
# one. Nothing of them is in the library: the copies are linked in place of its objects, into one test program.
#
#   cmake -DFROM=<source directory> -DINTO=<directory> -P mutations.cmake
#
# mutation(source text faulty): `text` must occur in the source exactly once, so that a fault cannot go lost when the source changes.

function(mutation source text faulty)
    if(NOT DEFINED copy_of_${source})
        file(READ ${FROM}/${source} content)
        list(APPEND sources ${source})
        set(sources ${sources} PARENT_SCOPE)
    else()
        set(content "${copy_of_${source}}")
    endif()
    string(FIND "${content}" "${text}" first)
    string(FIND "${content}" "${text}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
        message(FATAL_ERROR "${source}: not found exactly once, where a fault is to be put (tests/mutations/mutations.cmake):\n${text}")
    endif()
    string(REPLACE "${text}" "${faulty}" content "${content}")
    set(copy_of_${source} "${content}" PARENT_SCOPE)
endfunction()

# --- the wait queue ----------------------------------------------------------------------------------------------------------

mutation(runtime/direction.cpp [[
    if (!waiters.empty() && more_to_do)]] [[
    if (!waiters.empty() && more_to_do && !broken("baton"))]])

mutation(runtime/direction.cpp [[
    if (!waiters.empty()) {
        idle_events = 0;
        schedule();]] [[
    if (!waiters.empty()) {
        idle_events = 0;
        if (!broken("wake"))
            schedule();]])

# --- the hand-off: who waits is served before who comes ----------------------------------------------------------------------

mutation(runtime/direction.cpp [[
    if (!where.waiters.empty()) {
        // No barging]] [[
    if (!where.waiters.empty() && !broken("barging")) {
        // No barging]])

# --- the cancel hand-shake ---------------------------------------------------------------------------------------------------

mutation(runtime/direction.cpp [[
        if (n != -EAGAIN)
            result_ = n;]] [[
        if (n != -EAGAIN && !broken("cancel"))
            result_ = n;]])

mutation(runtime/direction.cpp [[
    if (where.work.pending && &where.waiters.front() == this) {]] [[
    if (where.work.pending && &where.waiters.front() == this && !broken("buffer")) {]])

# --- what is left behind -----------------------------------------------------------------------------------------------------

mutation(runtime/direction.cpp [[
    if (poll.armed && !poll.removing) {]] [[
    if (poll.armed && !poll.removing && !broken("poll")) {]])

mutation(runtime/task_scope.cpp [[
    if (state_->active_ == 0) {]] [[
    if (state_->active_ == 0 || broken("nursery")) {]])

# --- counters ----------------------------------------------------------------------------------------------------------------

mutation(runtime/direction.cpp [[
            home().charge(moved);
            counts.inline_completions.add();]] [[
            home().charge(moved);
            if (!broken("inline counter"))
                counts.inline_completions.add();]])

mutation(runtime/direction.cpp [[
    counts.armed.add();
    if (list_node::linked()) {]] [[
    if (!broken("armed counter"))
        counts.armed.add();
    if (list_node::linked()) {]])

mutation(runtime/direction.cpp [[
        if (tries)
            counts.nowait_misses.add();]] [[
        if (tries || broken("miss counter"))
            counts.nowait_misses.add();]])

mutation(runtime/blocking.cpp [[
    home().counters_of(operation_kind::blocking).punted.add();]] [[
    if (!broken("punt counter"))
        home().counters_of(operation_kind::blocking).punted.add();]])

foreach(source IN LISTS sources)
    set(copy "#include \"mutations.hpp\"\nusing nowait_test::broken;\n#line 1 \"${FROM}/${source}\"\n${copy_of_${source}}")
    file(CONFIGURE OUTPUT ${INTO}/${source} CONTENT "${copy}" @ONLY)
endforeach()
