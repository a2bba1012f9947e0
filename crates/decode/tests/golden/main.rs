//! Trees, acceptance and compaction against recordings of the published implementations.

mod compaction;
mod end_to_end;
mod posterior;
mod tree;
