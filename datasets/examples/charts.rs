//! Draws a sheet of charts: `cargo run -p sightdraft-datasets --example charts -- sheet.png`. Prints their questions and
//! answers.

use image::{RgbImage, imageops};
use sightdraft_datasets::charts::{Chart, SIDE, Split};

fn main() -> Result<(), image::ImageError> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "charts.png".into());
    let (columns, scale) = (4, 2);
    let mut sheet = RgbImage::new(columns * SIDE * scale, 3 * SIDE * scale);
    for i in 0..columns * 3 {
        let chart = Chart::new(0, Split::HeldOut, u64::from(i));
        println!("{}\n  {}", chart.question, chart.answer);
        let large = imageops::resize(&chart.image, SIDE * scale, SIDE * scale, imageops::FilterType::Nearest);
        let (x, y) = (i % columns * SIDE * scale, i / columns * SIDE * scale);
        imageops::replace(&mut sheet, &large, x.into(), y.into());
    }
    sheet.save(path)
}
