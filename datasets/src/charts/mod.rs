//! Charts drawn from a seed, with questions and true answers: what the built-in target is trained on and measured with.

mod canvas;
mod font;
mod plot;
mod score;
mod talk;
mod words;

use std::ops::Range;

use image::RgbImage;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sightdraft_core::Message;

use crate::{Conversation, ImageSource};

pub use score::{ChartScore, chart_score};

/// Pixels along a side of a chart: 5 x 5 patches of [`SLOT`] pixels.
pub const SIDE: u32 = 140;
/// Pixels of the slot that an item has.
pub const SLOT: u32 = 28;

/// Seed of the charts that drafts are trained on; benchmarks draw from other sets.
const LESSONS: u64 = 1;

/// How the values are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChartKind {
    /// Bars side by side.
    Bar,
    /// Points joined by a line.
    Line,
    /// Slices of a disc; the values sum to 100.
    Pie,
}

/// Which charts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// For training.
    Train,
    /// For measuring: other seeds, and titles (pairs of words) that no training chart has.
    HeldOut,
}

/// A chart, a question about it and the true answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// How it is drawn.
    pub kind: ChartKind,
    /// Two words; drawn in capitals, one over the other.
    pub title: String,
    /// What the items are: `days`, `crops`, ..
    pub group: &'static str,
    /// Three to five different labels.
    pub labels: Vec<String>,
    /// Their values, 10 to 99, all different.
    pub values: Vec<u32>,
    /// The question.
    pub question: String,
    /// A true answer of two to five sentences.
    pub answer: String,
    /// The picture, [`SIDE`] pixels square.
    pub image: RgbImage,
}

impl Chart {
    /// The chart of `index` in `split` of the endless set `seed`.
    pub fn new(seed: u64, split: Split, index: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(index * 2 + u64::from(split == Split::HeldOut));
        let kind = *[ChartKind::Bar, ChartKind::Line, ChartKind::Pie].choose(&mut rng).unwrap_or(&ChartKind::Bar);
        let (group, labels) = labels(&mut rng);
        let mut chart = Self {
            kind,
            title: title(split, &mut rng),
            group,
            values: values(kind, labels.len(), &mut rng),
            labels,
            question: String::new(),
            answer: String::new(),
            image: RgbImage::default(),
        };
        (chart.question, chart.answer) = talk::ask(&chart, &mut rng);
        chart.image = plot::draw(&chart, &mut rng);
        chart
    }

    /// The item with the largest value.
    pub fn largest(&self) -> usize {
        (0..self.values.len()).max_by_key(|i| self.values[*i]).unwrap_or(0)
    }

    /// The item with the smallest value.
    pub fn smallest(&self) -> usize {
        (0..self.values.len()).min_by_key(|i| self.values[*i]).unwrap_or(0)
    }
}

/// The charts of `numbers` to train drafts on, each with its question and the true answer. An id is the chart's number.
pub fn lessons(numbers: Range<u64>) -> impl Iterator<Item = Conversation> {
    numbers.map(|number| {
        let chart = Chart::new(LESSONS, Split::Train, number);
        let mut lesson = Conversation::about_image(
            number.to_string(),
            &chart.question,
            ImageSource::Drawn(chart.image),
            vec![chart.answer.clone()],
        );
        lesson.messages.push(Message::assistant(chart.answer));
        lesson
    })
}

/// How many titles held-out charts have.
fn held_out_titles() -> usize {
    (0..words::QUALIFIERS.len() * words::SUBJECTS.len())
        .filter(|i| words::title_is_held_out(i / words::SUBJECTS.len(), i % words::SUBJECTS.len()))
        .count()
}

fn title(split: Split, rng: &mut impl Rng) -> String {
    loop {
        let (qualifier, subject) =
            (rng.random_range(0..words::QUALIFIERS.len()), rng.random_range(0..words::SUBJECTS.len()));
        if words::title_is_held_out(qualifier, subject) == (split == Split::HeldOut) {
            return format!("{} {}", words::QUALIFIERS[qualifier], words::SUBJECTS[subject]);
        }
    }
}

fn labels(rng: &mut impl Rng) -> (&'static str, Vec<String>) {
    let (group, mut pool) = words::GROUPS[rng.random_range(0..words::GROUPS.len())];
    pool.shuffle(rng);
    let n = rng.random_range(3..=5);
    (group, pool[..n].iter().map(|label| label.to_string()).collect())
}

/// Different values from 10 to 99, the largest at least 4 above the next so that the eye can tell; a pie's sum to 100.
fn values(kind: ChartKind, n: usize, rng: &mut impl Rng) -> Vec<u32> {
    loop {
        let mut values: Vec<u32> = (0..n).map(|_| rng.random_range(10..=99)).collect();
        if kind == ChartKind::Pie {
            let sum: u32 = values.iter().sum();
            values.iter_mut().for_each(|value| *value = *value * 100 / sum);
            values[0] += 100 - values.iter().sum::<u32>();
        }
        let mut sorted = values.clone();
        sorted.sort_unstable();
        let apart = sorted.windows(2).all(|pair| pair[0] < pair[1]) && sorted[n - 1] >= sorted[n - 2] + 4;
        if apart && sorted[0] >= 10 {
            return values;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_follows_from_its_seed_and_index() {
        let chart = Chart::new(7, Split::Train, 3);
        assert_eq!(chart, Chart::new(7, Split::Train, 3));
        assert_ne!(chart, Chart::new(7, Split::Train, 4));
        assert_ne!(chart, Chart::new(8, Split::Train, 3));
    }

    #[test]
    fn lessons_are_numbered_charts_with_true_answers() {
        let lessons: Vec<Conversation> = lessons(3..5).collect();
        assert_eq!(lessons.iter().map(|lesson| lesson.id.as_str()).collect::<Vec<_>>(), ["3", "4"]);
        let chart = Chart::new(LESSONS, Split::Train, 4);
        assert_eq!(lessons[1].images, [ImageSource::Drawn(chart.image)]);
        let turns = [Message::user(format!("<image>\n{}", chart.question)), Message::assistant(chart.answer)];
        assert_eq!(lessons[1].messages, turns);
    }

    #[test]
    fn values_are_readable_and_different() {
        for index in 0..300 {
            let chart = Chart::new(1, Split::Train, index);
            let mut values = chart.values.clone();
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len(), chart.labels.len());
            assert!(values.iter().all(|value| (10..=99).contains(value)), "{values:?}");
            assert!(chart.kind != ChartKind::Pie || values.iter().sum::<u32>() == 100, "{values:?}");
        }
    }

    #[test]
    fn held_out_titles_are_never_trained_on() {
        let titles = |split| (0..400).map(|i| Chart::new(1, split, i).title).collect::<std::collections::HashSet<_>>();
        let (train, held_out) = (titles(Split::Train), titles(Split::HeldOut));
        assert!(train.is_disjoint(&held_out));
        assert!(held_out.len() <= held_out_titles() && held_out.len() > 40);
    }

    #[test]
    fn true_answers_score_one_and_anothers_answers_about_chance() {
        let charts: Vec<Chart> = (0..300).map(|i| Chart::new(5, Split::HeldOut, i)).collect();
        let mut answers: Vec<String> = charts.iter().map(|chart| chart.answer.clone()).collect();
        let right = chart_score(&charts, &answers);
        assert_eq!((right.value, right.title, right.of), (1.0, 1.0, 300));
        assert!((0.2..0.34).contains(&right.chance));
        answers.rotate_left(1);
        let wrong = chart_score(&charts, &answers);
        assert!(wrong.value < right.chance && wrong.title < 0.1, "{wrong:?}");
    }

    #[test]
    fn the_picture_shows_the_values() {
        let chart = (0..).map(|i| Chart::new(2, Split::Train, i)).find(|c| c.kind == ChartKind::Bar).unwrap();
        let paper = *chart.image.get_pixel(139, 29);
        let filled = |x: u32| (29..112).filter(|y| *chart.image.get_pixel(x, *y) != paper).count();
        let heights: Vec<usize> = (0..5).map(|slot| filled(slot * SLOT + 14)).collect();
        let tallest = (0..5).max_by_key(|slot| heights[*slot]).unwrap();
        let first = heights.iter().position(|height| *height > 4).unwrap();
        assert_eq!(tallest - first, chart.largest());
    }
}
