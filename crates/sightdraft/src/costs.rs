//! What passes cost on this machine, measured once per device, target, precision and draft.

use std::path::PathBuf;

use sightdraft_core::Result;
use sightdraft_core::files::write_atomically;
use sightdraft_decode::{Costs, Tuner};
use sightdraft_draft::DraftModel;
use sightdraft_target::ServedTarget;

use crate::builtin::cache;

/// Seconds that measuring may take, beyond what it takes at least.
const BUDGET: f64 = 1.0;

/// A chooser of trees for `draft` on `device` (its sentence), by costs from the user's cache or measured now.
///
/// # Errors
/// A cache folder that cannot be written.
pub fn tuner(target: &ServedTarget, draft: &DraftModel, device: &str) -> Result<Tuner> {
    let file = cache().join("sightdraft/costs").join(file_name(target, draft, device));
    // Whatever cannot be read is measured again.
    let known = std::fs::read(&file).ok().and_then(|bytes| serde_json::from_slice::<Costs>(&bytes).ok());
    if let Some(costs) = known {
        return Ok(Tuner::new(costs));
    }
    eprintln!("measuring what verification costs on this machine (kept in {})", file.display());
    let costs = Costs::measure(target.model.llama(), draft, BUDGET);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder).map_err(|e| sightdraft_core::Error::io("create", folder, e))?;
    }
    let json = serde_json::to_vec(&costs)
        .map_err(|e| sightdraft_core::Error::invalid("costs", "finite numbers", e.to_string(), "measure again"))?;
    write_atomically(&file, &json)?;
    Ok(Tuner::new(costs))
}

/// Everything that a pass's cost depends on, in the alphabet of file names.
fn file_name(target: &ServedTarget, draft: &DraftModel, device: &str) -> PathBuf {
    let llama = target.model.llama();
    let config = &llama.config;
    let bytes: usize = llama.projections().iter().map(|(_, projection)| projection.bytes()).sum();
    let shape = draft.published().config();
    let name = format!(
        "{device}-{}x{}x{}x{}-{bytes}-{}-{}-{}",
        config.num_hidden_layers,
        config.hidden_size,
        config.intermediate_size,
        config.vocab_size,
        shape.method.name(),
        shape.draft_vocab_size,
        env!("CARGO_PKG_VERSION"),
    );
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c.to_ascii_lowercase() } else { '-' };
    PathBuf::from(name.chars().map(plain).collect::<String>()).with_added_extension("json")
}
