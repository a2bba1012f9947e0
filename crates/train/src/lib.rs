//! Objectives, E-step sampling, the feature cache and the training loop.

pub mod align;
pub mod estep;
pub mod objective;
