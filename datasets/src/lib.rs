//! Readers of the official benchmark files and the chart generator.

pub mod charts;
