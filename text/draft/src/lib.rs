//! Draft heads, their checkpoints and exports. It knows no objective.

pub mod config;
pub mod draft;
pub mod eagle3;
pub mod taps;
mod unroll;
pub mod vocab;

pub use config::DraftConfig;
pub use draft::{Draft, DraftModel, DraftPass, DraftState, FeatureRows};
pub use eagle3::Eagle3;
pub use vocab::VocabMap;
