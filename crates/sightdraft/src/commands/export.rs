//! `sightdraft export`: a draft in the layout that a server reads.

use std::path::PathBuf;

use clap::Args;
use sightdraft_core::{Result, hub};
use sightdraft_draft::export::{Format, TargetFiles, export};

use crate::arguments::Precision;
use crate::builtin;
use crate::output::say_line;

#[derive(Debug, Args)]
pub struct Arguments {
    /// The draft: a directory or a hub name.
    draft: String,
    /// The target that it was trained for: a directory, a hub name, or `builtin`. Its config.json is read, and for some layouts
    /// its embeddings.
    #[arg(long)]
    target: String,
    /// sglang (SpecForge and EAGLE too), vllm or speculators.
    #[arg(long)]
    format: Format,
    /// A directory that is not there yet.
    #[arg(long)]
    out: PathBuf,
    /// Precision of the weights.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    dtype: Precision,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // What EAGLE's own layout holds is the draft's alone, so the target's weights need not be there.
    let dir = match arguments.format {
        Format::Sglang => builtin::resolve_configs(&arguments.target)?,
        Format::Vllm | Format::Speculators => builtin::resolve(&arguments.target)?,
    };
    let target = TargetFiles::open(&dir, &arguments.target)?;
    export(&hub::resolve(&arguments.draft)?, &target, arguments.format, arguments.dtype.into(), &arguments.out)?;
    say_line(&format!("{} holds the draft as {} loads it", arguments.out.display(), arguments.format))
}
