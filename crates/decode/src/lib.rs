//! Draft trees, verification rules, the generation loop and its counters. It knows no training.

pub mod counters;
pub mod generate;
pub mod sampling;
pub mod stop;
pub mod tree;
pub mod verify;

pub use counters::{Counters, Seconds};
pub use generate::{Generation, Request, generate};
pub use sampling::Sampling;
pub use stop::Stop;
pub use tree::{DraftTree, TreeShape};
pub use verify::{Acceptance, Verdict, Verifier};
