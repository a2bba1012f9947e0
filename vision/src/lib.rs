//! Images: decoding, both LLaVA preprocessing conventions, the vision tower (CLIP's or DINOv2's) and the projector. It knows no text.

pub mod config;
pub mod image;
mod linear;
mod names;
mod position;
pub mod preprocess;
pub mod preprocess_config;
pub mod projector;
pub mod resize;
pub mod tower;
mod weights;

pub use self::image::Image;
pub use config::{Family, VisionConfig};
pub use preprocess::{Pixels, Preprocessor};
pub use preprocess_config::{PreprocessConfig, Resize};
pub use projector::{Projector, VisionModel};
pub use tower::VisionTower;
