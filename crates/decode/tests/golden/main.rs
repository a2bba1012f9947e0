//! Trees, acceptance and compaction against recordings of the published implementations.

mod files;
mod posterior;
mod tree;
