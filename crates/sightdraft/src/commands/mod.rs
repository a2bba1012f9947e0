//! One file per command.

pub mod demo;
pub mod devices;
pub mod eval;
pub mod generate;
pub mod inspect;
pub mod merge;
pub mod regenerate;
pub mod train;

use serde::Serialize;
use sightdraft_core::{Error, Result};

/// Prints `value` as the one JSON object on stdout.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::invalid("--json", "finite numbers", e.to_string(), "run without --json"))?;
    println!("{text}");
    Ok(())
}
