//! `i/n`: every n-th prompt, so that machines can share a benchmark.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sightdraft_core::Error;

/// Part `index` of `of`, counted from 1 as people do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Which part, 1 to `of`.
    pub index: usize,
    /// Parts.
    pub of: usize,
}

impl Shard {
    /// Everything.
    pub const WHOLE: Self = Self { index: 1, of: 1 };

    /// Whether prompt number `i` (from 0) belongs to this part.
    pub fn has(&self, i: usize) -> bool {
        i % self.of == self.index - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

impl FromStr for Shard {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if index >= 1 && index <= of => Ok(Self { index, of }),
            _ => Err(Error::invalid("--shard", "i/n with 1 <= i <= n", text, "write for example --shard 1/4")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_partition_the_prompts() {
        let shards: Vec<Shard> = (1..=3).map(|i| format!("{i}/3").parse().unwrap()).collect();
        for i in 0..10 {
            assert_eq!(shards.iter().filter(|s| s.has(i)).count(), 1);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["0/3", "4/3", "1", "a/b", "1/0", ""] {
            assert!(bad.parse::<Shard>().is_err(), "{bad}");
        }
    }
}
