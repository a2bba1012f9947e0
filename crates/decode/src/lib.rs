//! Draft trees, verification rules, the generation loop and its counters. It knows no training.

pub mod adaptive;
pub mod batch;
pub mod builder;
pub mod costs;
pub mod counters;
mod drafting;
pub mod dynamic;
pub mod generate;
pub mod guesses;
#[cfg(test)]
mod image_drafts;
mod odds;
pub mod point_mass;
pub mod ratio;
pub mod sampled;
pub mod sampling;
pub mod stop;
pub mod tree;
pub mod verify;
pub mod walk;

pub use adaptive::Tuner;
pub use batch::generate_batch;
pub use builder::TreeBuilder;
pub use costs::{CostCurve, Costs};
pub use counters::{Counters, Seconds};
pub use dynamic::DynamicTree;
pub use generate::{Generation, Request, generate};
pub use guesses::Guesses;
pub use point_mass::PointMass;
pub use ratio::Ratio;
pub use sampled::SampledTree;
pub use sampling::Sampling;
pub use stop::Stop;
pub use tree::{DraftTree, TreeChoice, TreeShape};
pub use verify::{Acceptance, Greedy, Verdict, Verifier};
pub use walk::Walk;
