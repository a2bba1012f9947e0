//! Whether answers are true of their charts.

use serde::Serialize;

use super::{Chart, talk};

/// Shares of answers that are right, beside what guessing would reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ChartScore {
    /// Answers that name the right largest item.
    pub value: f64,
    /// The same for a guess among the chart's own labels: the mean of 1 / items.
    pub chance: f64,
    /// Answers that contain the title.
    pub title: f64,
    /// The same for a guess among the titles that held-out charts have.
    pub title_chance: f64,
    /// Answers scored.
    pub of: usize,
}

/// Scores one answer per chart: does it name the right tallest bar (highest point, largest slice), does it give the title?
/// Extra charts or answers are left out; no charts at all score 0.
pub fn chart_score(charts: &[Chart], answers: &[String]) -> ChartScore {
    let of = charts.len().min(answers.len());
    let share = |sum: f64| if of == 0 { 0.0 } else { sum / of as f64 };
    let pairs = || charts.iter().zip(answers);
    ChartScore {
        value: share(pairs().filter(|(chart, answer)| names_largest(chart, answer)).count() as f64),
        chance: share(pairs().map(|(chart, _)| 1.0 / chart.labels.len() as f64).sum()),
        title: share(pairs().filter(|(chart, answer)| answer.contains(&chart.title)).count() as f64),
        title_chance: 1.0 / super::held_out_titles() as f64,
        of,
    }
}

/// Whether the first "tallest bar is" (or its like) of `answer` goes on with the right label.
fn names_largest(chart: &Chart, answer: &str) -> bool {
    let phrase = talk::largest_phrase(chart.kind);
    answer.split_once(phrase).is_some_and(|(_, rest)| {
        let word = rest.trim_start().split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        word == chart.labels[chart.largest()]
    })
}
