//! One file per command.

pub mod bench;
pub mod demo;
pub mod devices;
pub mod eval;
pub mod export;
pub mod generate;
pub mod grid;
pub mod inspect;
pub mod merge;
pub mod regenerate;
pub mod train;
