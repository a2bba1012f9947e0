//! What the process has taken of main memory at most.

/// The most bytes of this process that were in main memory at once; None where the system does not say (it is read from
/// Linux's `/proc`).
pub fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_covers_what_was_touched() {
        let before = peak_memory().unwrap();
        let touched = vec![1u8; 64 << 20];
        let after = peak_memory().unwrap();
        assert!(after >= before && after >= touched.len() as u64, "{before} to {after}");
    }
}
