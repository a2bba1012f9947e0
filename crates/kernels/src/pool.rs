//! Threads for work that lasts microseconds.
//!
//! A decoding pass has hundreds of layers, some of which take 20 us on all cores. Waking a sleeping thread costs about as
//! much, so a helper waits a moment in a loop before it sleeps, the caller works too, and a helper that comes
//! late is not waited for. (A general pool waits for every task that it was handed, even for one that would find nothing left
//! to do.)

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, TryLockError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a helper looks for new work before it sleeps: longer than the gaps between the layers of a pass.
const LINGER: Duration = Duration::from_micros(150);

/// Values that must be read before it pays to share them out: a call that one core is through with in some 15 us would wait for
/// the others longer than they save it.
const WORTH: usize = 1 << 16;

/// Threads that should share the reading of `values` values: all, or the caller alone.
pub(crate) fn threads_for(values: usize) -> usize {
    if values < WORTH { 1 } else { threads() }
}

/// Threads that work on a call, the caller included: the processor's cores, or `RAYON_NUM_THREADS` (which burn's own CPU
/// kernels obey too) if it is lower.
pub fn threads() -> usize {
    Pool::get().helpers.len() + 1
}

/// Calls `task(i)` once for each `i < tasks`, on all cores, in no particular order; returns when all are done. All tasks together
/// read `values` values.
///
/// If they are few, or the pool is busy with another caller's work, this thread does everything alone.
///
/// # Panics
/// If a task panics, with its panic, once no thread works on the call any more.
pub(crate) fn for_each(values: usize, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
    if tasks > 1 && values >= WORTH {
        let pool = Pool::get();
        if !pool.helpers.is_empty()
            && let Some(_turn) = pool.try_turn()
        {
            return pool.run(tasks, task);
        }
    }
    (0..tasks).for_each(task);
}

/// Calls `work`, which is worth sharing, once with each of `items`, on all cores: whoever is free takes the next one.
///
/// # Panics
/// As [`for_each`].
pub(crate) fn share_out<T: Send>(items: impl ExactSizeIterator<Item = T> + Send, work: impl Fn(T) + Sync) {
    let count = items.len();
    let queue = Mutex::new(items);
    for_each(usize::MAX, count, &|_| {
        // Taken before the work begins, so that the lock is held for the taking alone.
        let item = lock(&queue).next();
        item.into_iter().for_each(&work);
    });
}

/// Neighbouring tasks that a thread does one after another: memory is fastest when each core reads on where it was.
#[repr(align(64))]
struct Section {
    next: AtomicUsize,
    end: usize,
}

impl Section {
    /// `tasks` cut into `count` sections.
    fn cut(tasks: usize, count: usize) -> Vec<Section> {
        let start = |i: usize| i * tasks / count;
        (0..count).map(|i| Section { next: AtomicUsize::new(start(i)), end: start(i + 1) }).collect()
    }
}

/// One call's work, on its caller's stack.
struct Call<'a> {
    task: &'a (dyn Fn(usize) + Sync),
    sections: Vec<Section>,
    /// Threads that have come for work.
    came: AtomicUsize,
    /// Helpers that have joined and not left.
    inside: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

impl Call<'_> {
    /// Takes the tasks of a section of its own, then what is left of the others, until none is left. Never unwinds.
    fn work(&self) {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let own = self.came.fetch_add(1, Relaxed);
            for i in 0..self.sections.len() {
                let section = &self.sections[(own + i) % self.sections.len()];
                loop {
                    let task = section.next.fetch_add(1, Relaxed);
                    if task >= section.end {
                        break;
                    }
                    (self.task)(task);
                }
            }
        }));
        if let Err(panic) = done {
            self.sections.iter().for_each(|section| section.next.store(section.end, Relaxed));
            *lock(&self.panic) = Some(panic);
        }
    }
}

/// A call as the helpers see it: its true lifetime is watched by [`Pool::run`].
#[derive(Clone, Copy)]
struct Posted(*const Call<'static>);

// SAFETY: `Call` is `Sync` (its task is, the rest are atomics and a mutex); only the address is sent.
unsafe impl Send for Posted {}

struct Helper {
    thread: Thread,
    asleep: AtomicBool,
}

struct Pool {
    helpers: Vec<OnceLock<Helper>>,
    /// Held by the caller whose work is posted.
    turn: Mutex<()>,
    posted: Mutex<Option<Posted>>,
    /// Grows by one with each posting.
    epoch: AtomicUsize,
}

impl Pool {
    fn get() -> &'static Pool {
        static POOL: OnceLock<Pool> = OnceLock::new();
        static STARTED: OnceLock<()> = OnceLock::new();
        let pool = POOL.get_or_init(|| Pool {
            helpers: (1..wanted_threads()).map(|_| OnceLock::new()).collect(),
            turn: Mutex::new(()),
            posted: Mutex::new(None),
            epoch: AtomicUsize::new(0),
        });
        STARTED.get_or_init(|| {
            for i in 0..pool.helpers.len() {
                // Where no thread can be started, the caller simply does that share.
                let _ = thread::Builder::new().name(format!("kernels-{i}")).spawn(move || pool.help(i));
            }
        });
        pool
    }

    /// The right to post, unless somebody has it. A call that panicked while it had it left nothing behind.
    fn try_turn(&self) -> Option<MutexGuard<'_, ()>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Posts a call, works on it, and takes it back once no helper holds it.
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let call = Call {
            task,
            sections: Section::cut(tasks, tasks.min(self.helpers.len() + 1)),
            came: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            panic: Mutex::new(None),
        };
        *lock(&self.posted) = Some(Posted((&raw const call).cast()));
        self.epoch.fetch_add(1, SeqCst);
        for helper in self.helpers.iter().filter_map(OnceLock::get).take(tasks - 1) {
            if helper.asleep.swap(false, SeqCst) {
                helper.thread.unpark();
            }
        }
        call.work();
        // From here on nobody can join; those inside are on their last task. `work` does not unwind, so `call` is
        // still alive when the last one leaves.
        *lock(&self.posted) = None;
        wait_until(|| call.inside.load(Acquire) == 0);
        if let Some(panic) = lock(&call.panic).take() {
            resume_unwind(panic);
        }
    }

    /// A helper's life.
    fn help(&self, i: usize) {
        let me = self.helpers[i].get_or_init(|| Helper { thread: thread::current(), asleep: AtomicBool::new(false) });
        let mut seen = 0;
        loop {
            seen = self.next_epoch(seen, me);
            let joined = {
                let posted = lock(&self.posted);
                // SAFETY: while the call is posted, `run` has not returned; joining under the lock makes `run` wait for
                // this helper's leave.
                posted.map(|Posted(call)| unsafe { &*call }).inspect(|call| {
                    call.inside.fetch_add(1, Relaxed);
                })
            };
            if let Some(call) = joined {
                call.work();
                // The last touch: after it, `run` may return and the call be gone.
                call.inside.fetch_sub(1, Release);
            }
        }
    }

    /// Waits for an epoch after `seen`: in a loop at first, then asleep.
    fn next_epoch(&self, seen: usize, me: &Helper) -> usize {
        let changed = || self.epoch.load(SeqCst) != seen;
        let start = Instant::now();
        while !changed() {
            if start.elapsed() < LINGER {
                // The clock is looked at now and then, the epoch all the time.
                (0..32).take_while(|_| !changed()).for_each(|_| std::hint::spin_loop());
                continue;
            }
            me.asleep.store(true, SeqCst);
            // A posting between the store and here clears the flag and leaves a token that makes `park` return at once.
            if !changed() {
                thread::park();
            }
            me.asleep.store(false, SeqCst);
        }
        self.epoch.load(SeqCst)
    }
}

/// Short waits in a loop, longer ones (the helper lost its core) by giving up this thread's.
fn wait_until(done: impl Fn() -> bool) {
    let mut turns = 0u32;
    while !done() {
        turns += 1;
        if turns < 2000 {
            std::hint::spin_loop();
        } else {
            thread::yield_now();
        }
    }
}

fn wanted_threads() -> usize {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    match std::env::var("RAYON_NUM_THREADS").ok().and_then(|n| n.parse().ok()) {
        Some(n) if n > 0 => cores.min(n),
        _ => cores,
    }
}

/// No thread unwinds while it holds one of these locks, so a poisoned one is whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_task_runs_once() {
        for tasks in [0, 1, 2, 7, 1000] {
            let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            for _ in 0..50 {
                for_each(WORTH, tasks, &|i| {
                    counts[i].fetch_add(1, Relaxed);
                });
            }
            assert!(counts.iter().all(|c| c.load(Relaxed) == 50), "{tasks} tasks");
        }
    }

    #[test]
    fn little_work_stays_with_its_caller() {
        let me = thread::current().id();
        for_each(WORTH - 1, 100, &|_| assert_eq!(thread::current().id(), me));
        assert_eq!([threads_for(WORTH - 1), threads_for(WORTH)], [1, threads()]);
    }

    #[test]
    fn helpers_wake_after_sleep_and_callers_do_not_mix() {
        let callers: Vec<_> = (0..4usize)
            .map(|c| {
                thread::spawn(move || {
                    for round in 0..20 {
                        let sum = AtomicUsize::new(0);
                        for_each(WORTH, 64, &|i| {
                            sum.fetch_add(i * c, Relaxed);
                        });
                        assert_eq!(sum.into_inner(), 2016 * c);
                        if round % 5 == 0 {
                            thread::sleep(LINGER * 3);
                        }
                    }
                })
            })
            .collect();
        callers.into_iter().for_each(|c| c.join().expect("a caller failed"));
    }

    #[test]
    fn a_nested_call_does_not_wait_for_itself() {
        let count = AtomicUsize::new(0);
        for_each(WORTH, 8, &|_| {
            for_each(WORTH, 8, &|_| {
                count.fetch_add(1, Relaxed);
            });
        });
        assert_eq!(count.into_inner(), 64);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let caught = catch_unwind(|| {
            for_each(WORTH, 16, &|i| assert!(i != 9, "task nine"));
        });
        assert!(caught.is_err());
        let count = AtomicUsize::new(0);
        for_each(WORTH, 16, &|_| {
            count.fetch_add(1, Relaxed);
        });
        assert_eq!(count.into_inner(), 16);
    }
}
