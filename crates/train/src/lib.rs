//! Objectives, E-step sampling, the feature cache and the training loop.

pub mod align;
pub mod batches;
pub mod cache;
pub mod checkpoint;
pub mod clip;
pub mod config;
pub mod estep;
pub mod example;
pub mod features;
pub mod held_out;
pub mod objective;
pub mod peak;
pub mod plan;
pub mod ranges;
pub mod regenerate;
pub mod rollout;
pub mod trainable;
pub mod trainer;

pub use config::{ObjectiveConfig, OptimConfig, TrainConfig};
pub use example::{Example, Picture};
pub use plan::{Plan, Size, plan};
pub use regenerate::{RegenerateConfig, Regenerated, regenerate};
pub use trainer::{Setup, StepReport, Trainer};
