//! The binary on tiny models: what it prints, and how it refuses.

mod bad_input;
mod commands;
mod common;
mod demo;
mod export;
mod grid;
mod methods;
mod recipes;
mod resume;
mod trained;
