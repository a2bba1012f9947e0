//! From a chart's facts to its picture: a title of two lines at the top, the plot, and under it one slot of 28 pixels per
//! item with its label and its value. The slots and the title keep to the patches of the built-in target's vision tower,
//! because a model of that size learns to read a word that always breaks into patches the same way.

use image::{Rgb, RgbImage};
use rand::Rng;
use rand::seq::SliceRandom;

use super::canvas::{Canvas, Ink};
use super::{Chart, ChartKind, SIDE, SLOT, font};

const TEXT: Ink = Rgb([32, 34, 44]);
const AXIS: Ink = Rgb([96, 100, 112]);
const PAPERS: [Ink; 4] = [Rgb([255, 255, 255]), Rgb([250, 246, 236]), Rgb([238, 243, 250]), Rgb([240, 248, 240])];
const PALETTE: [Ink; 6] = [
    Rgb([38, 110, 190]),
    Rgb([226, 126, 30]),
    Rgb([46, 150, 80]),
    Rgb([204, 52, 60]),
    Rgb([132, 90, 180]),
    Rgb([20, 160, 170]),
];
const TOP: i32 = 28;
const BOTTOM: i32 = 112;

/// Draws `chart`; `rng` picks paper, colours, where the title stands and which slots are used.
pub(super) fn draw(chart: &Chart, rng: &mut impl Rng) -> RgbImage {
    let paper = PAPERS[rng.random_range(0..PAPERS.len())];
    let mut inks = PALETTE;
    inks.shuffle(rng);
    let columns = (SIDE / SLOT) as usize;
    let first = rng.random_range(0..=columns - chart.labels.len());
    let mut canvas = Canvas::new(SIDE, paper);
    title(&mut canvas, &chart.title, rng);
    let xs: Vec<i32> = (0..chart.labels.len()).map(|i| ((first + i) as u32 * SLOT) as i32).collect();
    match chart.kind {
        ChartKind::Bar => {
            if rng.random_bool(0.5) {
                inks = [inks[0]; 6];
            }
            grid(&mut canvas, paper);
            bars(&mut canvas, &chart.values, &xs, &inks, rng.random_range(7..=10));
        }
        ChartKind::Line => {
            grid(&mut canvas, paper);
            polyline(&mut canvas, &chart.values, &xs, inks[0]);
        }
        ChartKind::Pie => {
            let shares: Vec<(f64, Ink)> = chart.values.iter().map(|v| f64::from(*v)).zip(inks).collect();
            let radius = rng.random_range(34..=40);
            canvas.pie((SIDE as i32 / 2, (TOP + BOTTOM) / 2), radius, &shares, paper);
            for (x, ink) in xs.iter().zip(inks) {
                canvas.rect(x + 1, BOTTOM, SLOT as i32 - 3, 2, ink);
            }
        }
    }
    for ((x, label), value) in xs.iter().zip(&chart.labels).zip(&chart.values) {
        canvas.text(x + centred(label, font::NARROW), BOTTOM + 5, font::NARROW, label, TEXT);
        let value = value.to_string();
        canvas.text(x + centred(&value, font::WIDE), BOTTOM + 16, font::WIDE, &value, AXIS);
    }
    canvas.into_image()
}

/// Pixels that centre `text` in a slot.
fn centred(text: &str, advance: i32) -> i32 {
    let width = (text.len() as i32 - 1) * advance + font::WIDTH as i32;
    (SLOT as i32 - width) / 2
}

/// The first word over the second, at the left edge or one or two slots further.
fn title(canvas: &mut Canvas, title: &str, rng: &mut impl Rng) {
    let x = (rng.random_range(0..3) * SLOT) as i32 + 1;
    for (line, word) in title.split(' ').enumerate() {
        canvas.text(x, 4 + 12 * line as i32, font::WIDE, word, TEXT);
    }
}

fn grid(canvas: &mut Canvas, paper: Ink) {
    let faint = Rgb(paper.0.map(|c| c.saturating_sub(24)));
    for level in [25, 50, 75, 100] {
        canvas.rect(0, height_of(level), SIDE as i32, 1, faint);
    }
    canvas.rect(0, BOTTOM, SIDE as i32, 1, AXIS);
}

/// The row of `value` on a scale of 0 to 100.
fn height_of(value: u32) -> i32 {
    BOTTOM - (value as i32 * (BOTTOM - TOP - 2) + 50) / 100
}

fn bars(canvas: &mut Canvas, values: &[u32], xs: &[i32], inks: &[Ink], half: i32) {
    for ((value, x), ink) in values.iter().zip(xs).zip(inks) {
        let top = height_of(*value);
        canvas.rect(x + SLOT as i32 / 2 - half, top, 2 * half, BOTTOM - top, *ink);
    }
}

fn polyline(canvas: &mut Canvas, values: &[u32], xs: &[i32], ink: Ink) {
    let points: Vec<(i32, i32)> =
        values.iter().zip(xs).map(|(value, x)| (x + SLOT as i32 / 2 - 1, height_of(*value))).collect();
    for pair in points.windows(2) {
        canvas.line(pair[0], pair[1], ink);
    }
    for (x, y) in points {
        canvas.rect(x - 2, y - 2, 6, 6, ink);
    }
}
