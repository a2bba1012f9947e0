//! The few strokes that charts are made of.

use image::{Rgb, RgbImage};

use super::font;

/// A colour.
pub type Ink = Rgb<u8>;

/// An image under the brush. Strokes that leave the image are clipped.
pub struct Canvas {
    image: RgbImage,
}

impl Canvas {
    /// A square of `side` pixels filled with `paper`.
    pub fn new(side: u32, paper: Ink) -> Self {
        Self { image: RgbImage::from_pixel(side, side, paper) }
    }

    /// The finished image.
    pub fn into_image(self) -> RgbImage {
        self.image
    }

    /// One pixel.
    pub fn dot(&mut self, x: i32, y: i32, ink: Ink) {
        if x >= 0 && y >= 0 && (x as u32) < self.image.width() && (y as u32) < self.image.height() {
            self.image.put_pixel(x as u32, y as u32, ink);
        }
    }

    /// A filled rectangle with its upper left corner at (x, y).
    pub fn rect(&mut self, x: i32, y: i32, width: i32, height: i32, ink: Ink) {
        for row in y..y + height {
            for column in x..x + width {
                self.dot(column, row, ink);
            }
        }
    }

    /// A line two pixels thick.
    pub fn line(&mut self, from: (i32, i32), to: (i32, i32), ink: Ink) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).max(1);
        for step in 0..=steps {
            let t = f64::from(step) / f64::from(steps);
            let x = (f64::from(from.0) + t * f64::from(to.0 - from.0)).round() as i32;
            let y = (f64::from(from.1) + t * f64::from(to.1 - from.1)).round() as i32;
            self.rect(x, y, 2, 2, ink);
        }
    }

    /// A disc cut into slices: `shares` of the circle, clockwise from the top, each with its colour; `gap` parts them.
    pub fn pie(&mut self, centre: (i32, i32), radius: i32, shares: &[(f64, Ink)], gap: Ink) {
        let mut ends = Vec::with_capacity(shares.len());
        let mut sum = 0.0;
        for (share, _) in shares {
            sum += share;
            ends.push(sum);
        }
        for dy in -radius..=radius {
            for dx in -radius..=radius {
                if dx * dx + dy * dy > radius * radius + radius {
                    continue;
                }
                let angle = f64::from(dx).atan2(f64::from(-dy)).rem_euclid(std::f64::consts::TAU);
                let turn = angle / std::f64::consts::TAU * sum;
                let slice = ends.iter().position(|end| turn < *end).unwrap_or(ends.len() - 1);
                self.dot(centre.0 + dx, centre.1 + dy, shares[slice].1);
            }
        }
        for end in &ends {
            let angle = end / sum * std::f64::consts::TAU;
            let rim = (
                centre.0 + (f64::from(radius) * angle.sin()).round() as i32,
                centre.1 - (f64::from(radius) * angle.cos()).round() as i32,
            );
            self.line(centre, rim, gap);
        }
    }

    /// Text in the bitmap face, its upper left corner at (x, y), `advance` pixels from one character to the next.
    pub fn text(&mut self, x: i32, y: i32, advance: i32, text: &str, ink: Ink) {
        for (i, character) in text.chars().enumerate() {
            let left = x + i as i32 * advance;
            for (row, bits) in font::rows(character).iter().enumerate() {
                for column in 0..font::WIDTH {
                    if bits >> (font::WIDTH - 1 - column) & 1 == 1 {
                        self.dot(left + column as i32, y + row as i32, ink);
                    }
                }
            }
        }
    }
}
