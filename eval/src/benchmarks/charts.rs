//! Charts drawn on the spot: the benchmark that needs no file.

use sightdraft_datasets::charts::{Chart, ChartScore, Split, chart_score};
use sightdraft_vision::Image;

use crate::benchmark::Picture;
use crate::{Benchmark, Item};

/// Seed of the endless set from which the built-in benchmark takes its held-out charts.
pub const SEED: u64 = 0;

/// The first held-out charts of the set.
pub struct Charts {
    charts: Vec<Chart>,
    items: Vec<Item>,
}

impl Charts {
    /// `count` charts.
    pub fn new(count: usize) -> Self {
        let charts: Vec<Chart> = (0..count).map(|i| Chart::new(SEED, Split::HeldOut, i as u64)).collect();
        let items = charts.iter().enumerate().map(|(i, chart)| item(i, chart)).collect();
        Self { charts, items }
    }

    /// How well `answers`, one per chart, read the charts.
    pub fn read(&self, answers: &[String]) -> ChartScore {
        chart_score(&self.charts, answers)
    }

    /// The charts.
    pub fn charts(&self) -> &[Chart] {
        &self.charts
    }
}

/// Pixels of a chart as the vision tower takes them.
pub fn picture(chart: &Chart) -> Image {
    Image {
        width: chart.image.width() as usize,
        height: chart.image.height() as usize,
        rgb: chart.image.as_raw().clone(),
    }
}

fn item(index: usize, chart: &Chart) -> Item {
    Item {
        id: index.to_string(),
        category: Some(format!("{:?}", chart.kind).to_lowercase()),
        turns: vec![format!("<image>\n{}", chart.question)],
        pictures: vec![Picture::Drawn(picture(chart))],
        references: vec![chart.answer.clone()],
    }
}

impl Benchmark for Charts {
    fn name(&self) -> &str {
        "charts"
    }

    fn instruction(&self) -> &str {
        "<image>\n{question}"
    }

    fn items(&self) -> &[Item] {
        &self.items
    }

    fn max_new_tokens(&self) -> usize {
        128
    }

    /// 1 if the answer names the right largest item.
    fn score(&self, item: &Item, answers: &[String]) -> Option<f64> {
        let index: usize = item.id.parse().ok()?;
        let answer = answers.last()?;
        Some(chart_score(&self.charts[index..=index], std::slice::from_ref(answer)).value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_true_answer_scores_and_an_empty_one_does_not() {
        let charts = Charts::new(5);
        for item in charts.items() {
            assert_eq!(charts.score(item, &item.references), Some(1.0));
            assert_eq!(charts.score(item, &[String::new()]), Some(0.0));
        }
        let answers: Vec<String> = charts.charts().iter().map(|chart| chart.answer.clone()).collect();
        let score = charts.read(&answers);
        assert_eq!((score.value, score.title), (1.0, 1.0));
        assert!((0.2..0.34).contains(&score.chance) && score.title_chance < 0.1);
        assert!(["bar", "line", "pie"].contains(&charts.items()[0].category.as_deref().unwrap()));
        assert!(charts.has_pictures());
    }
}
