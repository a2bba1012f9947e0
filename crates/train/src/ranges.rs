//! Numbers of a recipe and what fits them: types cannot say that a weight is not negative.

use sightdraft_core::{Error, Result};

/// One number of a recipe, with its verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct Range {
    key: String,
    found: String,
    expected: String,
    holds: bool,
}

impl Range {
    fn new(key: &str, found: f64, expected: &str, holds: bool) -> Self {
        Self { key: key.into(), found: found.to_string(), expected: expected.into(), holds }
    }

    /// Above 0.
    pub fn positive(key: &str, value: impl Into<f64>) -> Self {
        let value = value.into();
        Self::new(key, value, "a positive number", value.is_finite() && value > 0.0)
    }

    /// 0 or above.
    pub fn weight(key: &str, value: impl Into<f64>) -> Self {
        let value = value.into();
        Self::new(key, value, "a number of at least 0", value.is_finite() && value >= 0.0)
    }

    /// From 0 to 1, both included.
    pub fn share(key: &str, value: impl Into<f64>) -> Self {
        let value = value.into();
        Self::new(key, value, "a number from 0 to 1", (0.0..=1.0).contains(&value))
    }

    /// From 0 to below 1.
    pub fn below_one(key: &str, value: impl Into<f64>) -> Self {
        let value = value.into();
        Self::new(key, value, "a number from 0 to below 1", (0.0..1.0).contains(&value))
    }

    /// Above 0, up to 1: the weight of unrolled step j is a power of it.
    pub fn decay(key: &str, value: impl Into<f64>) -> Self {
        let value = value.into();
        Self::new(key, value, "a number above 0 and up to 1", value > 0.0 && value <= 1.0)
    }

    /// A whole number from 1 to `most`.
    pub fn count(key: &str, value: usize, most: usize) -> Self {
        let expected = if most == usize::MAX { "at least 1".to_string() } else { format!("1 to {most}") };
        Self { key: key.into(), found: value.to_string(), expected, holds: (1..=most).contains(&value) }
    }

    /// The same number as a key of the table `place`.
    pub fn under(mut self, place: &str) -> Self {
        self.key = format!("{place}.{}", self.key);
        self
    }

    /// Whether all of `ranges` hold.
    ///
    /// # Errors
    /// The first that does not: its key, what fits, what was given.
    pub fn check(ranges: impl IntoIterator<Item = Self>) -> Result<()> {
        match ranges.into_iter().find(|range| !range.holds) {
            None => Ok(()),
            Some(wrong) => Err(Error::invalid(wrong.key, wrong.expected, wrong.found, "mend it in the recipe")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_are_none_are_refused_by_their_dotted_key() {
        let wrong = [
            Range::positive("a", f64::INFINITY),
            Range::weight("a", -0.1),
            Range::weight("a", f32::NAN),
            Range::share("a", 1.1),
            Range::below_one("a", 1.0),
            Range::decay("a", 0.0),
            Range::count("a", 0, 4),
            Range::count("a", 5, 4),
        ];
        for range in wrong {
            let message = Range::check([range.under("objective")]).unwrap_err().to_string();
            assert!(message.starts_with("objective.a"), "{message}");
        }
        Range::check([Range::share("a", 1.0), Range::weight("a", 0.0), Range::decay("a", 1.0)]).unwrap();
    }
}
