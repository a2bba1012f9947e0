//! Temperature, top-k and top-p, applied before verification.

use serde::{Deserialize, Serialize};

/// How the target samples. Temperature 0 is greedy.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sampling {
    /// Temperature.
    pub temperature: f32,
    /// Nucleus mass; 1 keeps everything.
    pub top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Seed of the uniforms.
    pub seed: u64,
}

impl Sampling {
    /// Temperature 0.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0 };
}
