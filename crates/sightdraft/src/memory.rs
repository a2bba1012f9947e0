//! The program's allocator.

use libmimalloc_sys::{mi_option_set_default, mi_option_t};

/// Large tensors come and go all the time: see Cargo.toml.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc.h, for which the binding has no name.
const PURGE_DELAY: mi_option_t = 15;

/// Freed memory stays with the program from now on. A training step frees what the next one asks for; by default the system takes
/// it back in between and clears every page anew, which is a sixth of a step's time. `MIMALLOC_PURGE_DELAY` (milliseconds) overrules
/// this.
pub fn keep_freed() {
    // SAFETY: an option may be set at any time, and every number is one or is ignored.
    unsafe { mi_option_set_default(PURGE_DELAY, -1) };
}

#[cfg(test)]
mod tests {
    use libmimalloc_sys::mi_option_get;

    use super::*;

    #[test]
    fn the_option_is_the_delay() {
        if std::env::var_os("MIMALLOC_PURGE_DELAY").is_some() {
            return;
        }
        // A second, as no other option has it.
        // SAFETY: reading an option.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, 1000);
        keep_freed();
        // SAFETY: as above.
        assert_eq!(unsafe { mi_option_get(PURGE_DELAY) }, -1);
    }
}
