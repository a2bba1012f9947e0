//! Decoded images.

use std::io::Cursor;
use std::path::Path;

use image::{DynamicImage, ImageReader};
use sightdraft_core::{Error, Result, files};

/// RGB bytes, `height * width * 3`, rows first; alpha is dropped as PIL's `convert("RGB")` does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Pixels across.
    pub width: usize,
    /// Pixels down.
    pub height: usize,
    /// `[height][width][3]`.
    pub rgb: Vec<u8>,
}

impl Image {
    /// Wraps `height * width * 3` bytes, rows first.
    ///
    /// # Errors
    /// A side of zero, or another number of bytes.
    pub fn from_rgb(width: usize, height: usize, rgb: Vec<u8>) -> Result<Self> {
        if width == 0 || height == 0 || rgb.len() != width * height * 3 {
            return Err(Error::invalid(
                format!("image of {width} x {height} pixels"),
                format!("{} bytes, and no side of zero", width * height * 3),
                format!("{} bytes", rgb.len()),
                "give three bytes for each pixel, rows first",
            ));
        }
        Ok(Self { width, height, rgb })
    }

    /// Decodes a PNG or JPEG file.
    ///
    /// # Errors
    /// A file that cannot be read, is empty, is of another format, or is corrupt.
    pub fn open(path: &Path) -> Result<Self> {
        Self::decode(&files::read(path)?, path)
    }

    /// Decodes PNG or JPEG bytes; `name` is what an error calls them.
    ///
    /// PNG of 8 bits or fewer decodes to exactly what PIL gives. Two differences remain. JPEG goes through another inverse
    /// cosine transform and chroma upsampling than libjpeg's, which the standard allows: measured against Pillow, single bytes
    /// differ by at most 4 (4:2:0), 3 (4:4:4) or 1 (grey). Of 16-bit grey PIL clips values to 255, which leaves a white image;
    /// the high byte is kept here, as PIL itself does for 16-bit colour.
    ///
    /// # Errors
    /// No bytes, another format, or a corrupt image.
    pub fn decode(bytes: &[u8], name: &Path) -> Result<Self> {
        let fault =
            |found: String| Error::file(name, "a PNG or JPEG image", found, "replace the file by a whole image");
        if bytes.is_empty() {
            return Err(fault("an empty file".into()));
        }
        let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|e| fault(e.to_string()))?;
        if reader.format().is_none() {
            return Err(fault("bytes of no known image format".into()));
        }
        let decoded = reader.decode().map_err(|e| fault(format!("a damaged or unsupported one ({e})")))?;
        let (width, height) = (decoded.width() as usize, decoded.height() as usize);
        Self::from_rgb(width, height, to_rgb(decoded)).map_err(|_| fault(format!("one of {width} x {height} pixels")))
    }
}

/// The RGB bytes. Of 16-bit channels the high byte is kept, where the `image` crate would round.
fn to_rgb(decoded: DynamicImage) -> Vec<u8> {
    match decoded {
        DynamicImage::ImageLuma16(_)
        | DynamicImage::ImageLumaA16(_)
        | DynamicImage::ImageRgb16(_)
        | DynamicImage::ImageRgba16(_) => {
            decoded.into_rgb16().into_raw().into_iter().map(|channel| (channel >> 8) as u8).collect()
        }
        _ => decoded.into_rgb8().into_raw(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(image: &DynamicImage) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
        bytes.into_inner()
    }

    #[test]
    fn alpha_is_dropped_and_grey_repeated() {
        let rgba = image::RgbaImage::from_raw(1, 1, vec![10, 20, 30, 0]).unwrap();
        let decoded = Image::decode(&png(&rgba.into()), Path::new("a.png")).unwrap();
        assert_eq!(decoded.rgb, [10, 20, 30]);
        let grey = image::GrayImage::from_raw(1, 1, vec![77]).unwrap();
        assert_eq!(Image::decode(&png(&grey.into()), Path::new("g.png")).unwrap().rgb, [77; 3]);
    }

    #[test]
    fn sixteen_bits_keep_the_high_byte() {
        let deep = image::ImageBuffer::<image::Rgb<u16>, _>::from_raw(1, 1, vec![0x12ff, 0x80ff, 0xffff]).unwrap();
        assert_eq!(Image::decode(&png(&deep.into()), Path::new("d.png")).unwrap().rgb, [0x12, 0x80, 0xff]);
    }

    #[test]
    fn bad_files_are_named_and_explained() {
        let whole = png(&image::RgbImage::from_fn(40, 40, |x, y| image::Rgb([x as u8, y as u8, 7])).into());
        let cases: [(&[u8], &str); 3] =
            [(b"", "empty file"), (b"<html>", "no known image format"), (&whole[..whole.len() / 2], "damaged")];
        for (bytes, words) in cases {
            let message = Image::decode(bytes, Path::new("chart.png")).unwrap_err().to_string();
            assert!(message.contains("chart.png") && message.contains(words), "{message}");
        }
        let message = Image::open(Path::new("no/such.png")).unwrap_err().to_string();
        assert!(message.contains("no/such.png"), "{message}");
    }
}
