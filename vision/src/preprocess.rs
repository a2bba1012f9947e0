//! From an image to normalised pixels: `crop` (Hugging Face: shortest edge, then centre crop) or `pad` (original LLaVA:
//! expand to a square of the mean colour first).

use std::path::Path;

use burn::prelude::*;
use sightdraft_core::Result;

use crate::preprocess_config::{Resize, decimal};
use crate::resize::{Canvas, bicubic};
use crate::{Image, PreprocessConfig};

/// Normalised pixels, `[3][size][size]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Pixels {
    /// Side length.
    pub size: usize,
    /// Channel-first values.
    pub values: Vec<f32>,
}

impl Pixels {
    /// Several images of one size as a tensor `[images, 3, size, size]`.
    ///
    /// # Panics
    /// If there is no image, or the sizes differ.
    pub fn batch(images: &[Self], device: &Device) -> Tensor<4> {
        let size = images[0].size;
        assert!(images.iter().all(|image| image.size == size), "images of one size");
        let values: Vec<f32> = images.iter().flat_map(|image| image.values.iter().copied()).collect();
        Tensor::from_data(TensorData::new(values, [images.len(), 3, size, size]), device)
    }
}

/// A preprocessing convention with its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Preprocessor {
    /// Sizes, mean and deviation.
    pub config: PreprocessConfig,
}

impl Preprocessor {
    /// Reads `preprocessor_config.json` (or `processor_config.json`).
    ///
    /// # Errors
    /// As [`PreprocessConfig::open`].
    pub fn open(dir: &Path) -> Result<Self> {
        Ok(Self { config: PreprocessConfig::open(dir)? })
    }

    /// Writes `preprocessor_config.json` into `dir`.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn save(&self, dir: &Path) -> Result<()> {
        let text = format!("{:#}\n", self.config.to_json());
        sightdraft_core::files::write_atomically(&dir.join("preprocessor_config.json"), text.as_bytes())
    }

    /// Resizes (PIL's bicubic), crops or pads, rescales, normalises.
    pub fn apply(&self, image: &Image) -> Pixels {
        let config = &self.config;
        let canvas = if config.pad { Canvas::square(image, self.background()) } else { Canvas::bare(image) };
        let (width, height) = resized(config.resize, canvas.width, canvas.height);
        let (x, y) = (Cut::new(width, config.size), Cut::new(height, config.size));
        let bytes = bicubic(&canvas, width, height, x.source(), y.source());

        // What a crop larger than the image adds is black before normalisation, as in Hugging Face's processor.
        let area = config.size * config.size;
        let mut values: Vec<f32> = (0..3 * area).map(|i| self.normalise(0, i / area)).collect();
        for (i, byte) in bytes.into_iter().enumerate() {
            let (pixel, channel) = (i / 3, i % 3);
            let (row, column) = (pixel / x.length + y.offset, pixel % x.length + x.offset);
            values[channel * area + row * config.size + column] = self.normalise(byte, channel);
        }
        Pixels { size: config.size, values }
    }

    /// The colour around a padded image: the mean, cut to whole bytes.
    fn background(&self) -> [u8; 3] {
        // The configured number in f64: an f32 of 0.2 times 255 could fall on the wrong side of 51.
        self.config.mean.map(|mean| (decimal(mean) * 255.0) as u8)
    }

    fn normalise(&self, byte: u8, channel: usize) -> f32 {
        let rescaled = (f64::from(byte) * self.config.rescale) as f32;
        (rescaled - self.config.mean[channel]) / self.config.std[channel]
    }
}

/// Width and height after resizing.
fn resized(resize: Resize, width: usize, height: usize) -> (usize, usize) {
    match resize {
        Resize::Keep => (width, height),
        Resize::Exact { width, height } => (width, height),
        Resize::ShortestEdge(edge) if width <= height => (edge, edge * height / width),
        Resize::ShortestEdge(edge) => (edge * width / height, edge),
    }
}

/// A centre cut along one axis: `length` pixels from `start` of the source land at `offset` of the result.
#[derive(Debug, PartialEq)]
struct Cut {
    start: usize,
    offset: usize,
    length: usize,
}

impl Cut {
    /// The middle `size` of `from` pixels; where that is an odd number too many or too few, the result starts half a
    /// pixel early in the source.
    fn new(from: usize, size: usize) -> Self {
        let start = from.saturating_sub(size) / 2;
        let offset = size.saturating_sub(from).div_ceil(2);
        Self { start, offset, length: from.min(size) }
    }

    fn source(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_hugging_faces() {
        assert_eq!(Cut::new(89, 28), Cut { start: 30, offset: 0, length: 28 });
        assert_eq!(Cut::new(28, 28), Cut { start: 0, offset: 0, length: 28 });
        assert_eq!(Cut::new(5, 8), Cut { start: 0, offset: 2, length: 5 });
    }

    #[test]
    fn a_crop_larger_than_the_image_is_black_around_it() {
        let mut config = PreprocessConfig::clip(4, false);
        (config.resize, config.mean, config.std) = (Resize::Keep, [0.0; 3], [1.0; 3]);
        let white = Image::from_rgb(2, 2, vec![255; 12]).unwrap();
        let pixels = Preprocessor { config }.apply(&white);
        let one = [0., 0., 0., 0., 0., 1., 1., 0., 0., 1., 1., 0., 0., 0., 0., 0.];
        assert_eq!(pixels.values, one.repeat(3));
    }

    #[test]
    fn a_sliver_neither_panics_nor_fills_the_memory() {
        let sliver = Image::from_rgb(1, 60_000, vec![200; 180_000]).unwrap();
        for pad in [false, true] {
            let pixels = Preprocessor { config: PreprocessConfig::clip(28, pad) }.apply(&sliver);
            assert!(pixels.values.iter().all(|v| v.is_finite()));
        }
    }

    #[test]
    fn the_background_is_the_mean_in_whole_bytes() {
        let mut config = PreprocessConfig::clip(4, true);
        assert_eq!(Preprocessor { config: config.clone() }.background(), [122, 116, 104]);
        config.mean = [0.2, 0.4, 0.6];
        assert_eq!(Preprocessor { config }.background(), [51, 102, 153]);
    }
}
