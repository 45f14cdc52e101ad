// Signals: the time limit, guard pages, and what the sanitizers report.
#pragma once

namespace emu {

/// Handlers for SIGSEGV, SIGBUS, SIGFPE and, after `limit` milliseconds (0: never), SIGALRM.
void open_guard(unsigned limit);
/// A signal stack for the calling thread.
void guard_thread();

} // namespace emu
