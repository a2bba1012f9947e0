//! Objectives, E-step sampling, the feature cache and the training loop.
