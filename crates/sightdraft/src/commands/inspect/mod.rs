//! `sightdraft inspect`: what a checkpoint is, from config files and tensor headers alone.

pub(super) mod geometry;
mod servers;

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sightdraft_core::{Checkpoint, Result};
use sightdraft_draft::export::{Verdict, servers as verdicts};

use geometry::{Geometry, Kind};

use crate::builtin;
use crate::output::{print_json, say};

/// Names under which weights may lie; without any of them the numbers come from the config.
const WEIGHTS: [&str; 4] =
    ["model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json"];

#[derive(Debug, Args)]
pub struct Arguments {
    /// A model directory, a hub name, or `builtin`.
    dir: String,
    /// Say whether the checkpoint, a draft, fits this target.
    #[arg(long)]
    target: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// What is known of a checkpoint.
#[derive(Debug, Serialize)]
struct Inspection {
    dir: PathBuf,
    kind: Kind,
    parameters: u64,
    /// Where `parameters` and `disk_bytes` come from.
    source: &'static str,
    disk_bytes: u64,
    memory_bytes: Memory,
    cache_bytes_per_token: u64,
    context: usize,
    fit: Option<Fit>,
    /// Of a draft.
    servers: Option<Vec<Verdict>>,
}

/// Bytes of the weights when loaded.
#[derive(Debug, Serialize)]
struct Memory {
    f32: u64,
    f16: u64,
}

/// Whether draft and target belong together.
#[derive(Debug, Serialize)]
struct Fit {
    target: PathBuf,
    fits: bool,
    obstacles: Vec<String>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let dir = builtin::resolve_configs(&arguments.dir)?;
    let geometry = Geometry::open(&dir)?;
    let fit = match &arguments.target {
        Some(target) => Some(fit(&geometry, &builtin::resolve_configs(target)?)?),
        None => None,
    };
    let inspection = inspect(dir, geometry, fit)?;
    if arguments.json {
        return print_json(&inspection);
    }
    say(&text(&inspection))
}

fn fit(draft: &Geometry, target: &Path) -> Result<Fit> {
    let obstacles = draft.obstacles(&Geometry::open(target)?);
    Ok(Fit { target: target.into(), fits: obstacles.is_empty(), obstacles })
}

fn inspect(dir: PathBuf, geometry: Geometry, fit: Option<Fit>) -> Result<Inspection> {
    let weights = WEIGHTS.iter().any(|name| dir.join(name).exists());
    let checkpoint = weights.then(|| Checkpoint::open(&dir)).transpose()?;
    let servers = match geometry.is_draft() {
        true => Some(verdicts(&dir, &checkpoint.as_ref().map(Checkpoint::names).unwrap_or_default())?),
        false => None,
    };
    let (parameters, disk_bytes, source) = if let Some(checkpoint) = checkpoint {
        let elements = |name: &&str| checkpoint.shape(name).unwrap_or_default().iter().product::<usize>() as u64;
        // A draft's vocabulary maps and its copy of the target's embeddings are no parameters of its own.
        let own = |name: &&&str| !matches!(**name, "d2t" | "t2d" | "embed_tokens.weight");
        let weights = checkpoint.names().iter().filter(own).map(elements).sum();
        (weights, checkpoint.bytes(), "tensor headers")
    } else {
        (geometry.parameters(), 2 * geometry.parameters(), "config.json alone, 16-bit weights assumed")
    };
    Ok(Inspection {
        dir,
        parameters,
        source,
        disk_bytes,
        memory_bytes: Memory { f32: 4 * parameters, f16: 2 * parameters },
        cache_bytes_per_token: geometry.cache_bytes_per_token(),
        context: geometry.context(),
        kind: geometry.kind,
        fit,
        servers,
    })
}

fn text(inspection: &Inspection) -> String {
    let i = inspection;
    let cache = i.cache_bytes_per_token;
    let mut text = format!(
        "{}: {}\n  parameters  {:.2} M ({})\n  disk        {}\n  memory      {} as f32, {} as f16\n  \
         key/values  {} per token in f32, {} at the full context of {}\n",
        i.dir.display(),
        i.kind,
        i.parameters as f64 / 1e6,
        i.source,
        bytes(i.disk_bytes),
        bytes(i.memory_bytes.f32),
        bytes(i.memory_bytes.f16),
        bytes(cache),
        bytes(cache * i.context as u64),
        i.context,
    );
    if let Some(fit) = &i.fit {
        let verdict = if fit.fits { "fits".to_string() } else { format!("does not fit: {}", fit.obstacles.join("; ")) };
        text.push_str(&format!("  target      {}: {verdict}\n", fit.target.display()));
    }
    text.push_str(&servers::lines(i.servers.as_deref().unwrap_or_default()));
    text
}

/// Bytes for people.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "kB", "MB", "GB", "TB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_have_units() {
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(16_100_000_000), "16.1 GB");
    }
}
