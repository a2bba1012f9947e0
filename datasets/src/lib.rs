//! Readers of the official benchmark files and the chart generator.
//!
//! Every reader gives [`Conversation`]s; every fault in a file is one sentence that names the file and, where there are lines,
//! the line.

pub mod chartqa;
pub mod charts;
pub mod conversation;
pub mod gsm8k;
pub mod humaneval;
mod lines;
pub mod mt_bench;
pub mod prompts;
pub mod sharegpt;
pub mod training;
pub mod vqav2;

pub use conversation::{CodeTest, Conversation, ImageSource};
