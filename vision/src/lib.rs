//! Images: decoding, both LLaVA preprocessing conventions, the CLIP vision tower and the projector. It knows no text.

pub mod clip;
pub mod config;
pub mod image;
mod linear;
pub mod preprocess;
pub mod preprocess_config;
pub mod projector;
pub mod resize;
mod weights;

pub use self::image::Image;
pub use clip::ClipVision;
pub use config::VisionConfig;
pub use preprocess::{Pixels, Preprocessor};
pub use preprocess_config::{PreprocessConfig, Resize};
pub use projector::{Projector, VisionModel};
