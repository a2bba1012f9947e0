//! The registry: what `--benchmark` can name.

pub mod charts;
pub mod official;

use std::path::Path;

use sightdraft_core::{Error, Result};
use sightdraft_datasets::prompts::Preset;

pub use charts::Charts;
pub use official::Official;

use crate::Benchmark;
use crate::scoring::Python;

/// Charts in the built-in benchmark.
const CHARTS: usize = 200;

/// Names that take `=PATH`.
const FILES: [&str; 5] = ["vqav2", "chartqa", "mt_bench", "humaneval", "gsm8k"];

/// The benchmark that `spec` names: `charts`, or `NAME=PATH` to the official files; `preset` is how visual questions are
/// asked, and `python`, if given, runs the code that is asked for.
///
/// # Errors
/// A name that is not known, a path that is missing, files that cannot be read.
pub fn open(spec: &str, preset: Preset, python: Option<&Python>) -> Result<Box<dyn Benchmark>> {
    let (name, path) = match spec.split_once('=') {
        Some((name, path)) => (name, Some(Path::new(path))),
        None => (spec, None),
    };
    let official = match (name, path) {
        ("charts", None) => return Ok(Box::new(Charts::new(CHARTS))),
        ("vqav2", Some(path)) => Official::vqav2(path, preset),
        ("chartqa", Some(path)) => Official::chartqa(path, preset),
        ("mt_bench", Some(path)) => Official::mt_bench(path),
        ("humaneval", Some(path)) => Official::humaneval(path, python.cloned()),
        ("gsm8k", Some(path)) => Official::gsm8k(path),
        _ => Err(Error::invalid(
            "--benchmark",
            format!("charts, or {} with =PATH", FILES.join(", ")),
            spec,
            "write for example --benchmark gsm8k=test.jsonl",
        )),
    };
    Ok(Box::new(official?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_known_and_strangers_are_refused_by_name() {
        assert_eq!(open("charts", Preset::Official, None).unwrap().name(), "charts");
        for name in FILES {
            let message =
                open(&format!("{name}=/nowhere"), Preset::Official, None).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains("/nowhere"), "{message}");
            let message = open(name, Preset::Official, None).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains("=PATH"), "{message}");
        }
        assert!(open("trivia", Preset::Official, None).map(|_| ()).unwrap_err().to_string().contains("trivia"));
    }
}
