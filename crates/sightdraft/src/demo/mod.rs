//! The demo's parts: training charts, two drafts of equal compute, a picture for the terminal.

pub mod lessons;
pub mod picture;
pub mod schooling;
