//! Images: decoding, both LLaVA preprocessing conventions, the CLIP vision tower and the projector. It knows no text.

pub mod clip;
pub mod config;
pub mod image;
pub mod preprocess;
pub mod projector;
pub mod resize;

pub use self::image::Image;
pub use clip::ClipVision;
pub use config::{PreprocessConfig, VisionConfig};
pub use preprocess::{Pixels, Preprocessor};
pub use projector::{Projector, VisionModel};
