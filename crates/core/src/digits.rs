//! Short names for what a run depends on.

use std::hash::{DefaultHasher, Hasher};

/// Sixteen hexadecimal digits of whatever `feed` hashes. They tell things apart that differ by chance, not by intent.
pub fn digits(feed: impl FnOnce(&mut DefaultHasher)) -> String {
    let mut hasher = DefaultHasher::new();
    feed(&mut hasher);
    format!("{:016x}", hasher.finish())
}
