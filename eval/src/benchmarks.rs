//! The registry: what `--benchmark` can name.

pub mod charts;

pub use charts::Charts;

use sightdraft_core::{Error, Result};

use crate::Benchmark;

/// Charts in the built-in benchmark.
const CHARTS: usize = 200;

/// The benchmark that `spec` names: `charts`, or `NAME=PATH` to the official files. `prompts` is the preset of the
/// instruction around visual questions.
pub fn open(spec: &str, _prompts: &str) -> Result<Box<dyn Benchmark>> {
    match spec.split_once('=') {
        None if spec == "charts" => Ok(Box::new(Charts::new(CHARTS))),
        _ => Err(Error::invalid(
            "--benchmark",
            "charts",
            spec,
            "download the benchmark's official files and name their path",
        )),
    }
}
