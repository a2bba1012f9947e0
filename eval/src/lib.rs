//! The measuring harness: benchmarks, metrics, scoring and reports. It knows no training.
//!
//! A [`runner`] takes a target, drafts and [`benchmark`]s to [`metrics::Sample`]s; [`metrics`] pools them into summaries and
//! [`report`] writes those as JSON, as a table and as a page. What is counted is token ids; what is timed is the same loop
//! with and without a draft, on the same prompts, interleaved.

pub mod agreement;
pub mod benchmark;
pub mod benchmarks;
pub mod bootstrap;
pub mod fingerprint;
pub mod merge;
pub mod metrics;
pub mod report;
pub mod runner;
pub mod scoring;
pub mod shard;

pub use benchmark::{Benchmark, Item};
pub use fingerprint::fingerprint;
pub use metrics::{Sample, Summary};
pub use report::{Report, Run};
pub use runner::{Entrant, Plan, run};
pub use shard::Shard;
