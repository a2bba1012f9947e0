//! Draft heads, their checkpoints and exports. It knows no objective.

pub mod adaptor;
mod compress;
pub mod config;
pub mod draft;
pub mod eagle1;
pub mod eagle3;
pub mod export;
mod fusion;
pub mod griffin;
pub mod layer;
pub mod method;
pub mod one_layer;
pub mod published;
pub mod rows;
pub mod shared;
pub mod size;
pub mod taps;
mod unroll;
pub mod vispec;
pub mod vocab;

pub use config::DraftConfig;
pub use draft::{Draft, DraftModel, DraftPass, DraftState, FeatureRows};
pub use eagle1::Eagle1;
pub use eagle3::Eagle3;
pub use griffin::Griffin;
pub use method::Method;
pub use published::Published;
pub use rows::UnrollRows;
pub use vispec::ViSpec;
pub use vocab::VocabMap;

/// Standard deviation of fresh weights.
const INIT_STD: f64 = 0.02;
