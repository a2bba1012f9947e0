//! Questions about a chart and their answers. The wording of an answer follows from the question and from what the chart
//! shows; every answer names the title and the largest item, so that any of them can be scored.

use rand::Rng;

use super::{Chart, ChartKind, words};

/// A question about `chart` (its picture apart) and the answer.
pub(super) fn ask(chart: &Chart, rng: &mut impl Rng) -> (String, String) {
    let facts = Facts::of(chart);
    match rng.random_range(0..6) {
        0 => ("Describe this chart.".into(), facts.description()),
        1 => ("What does the chart show?".into(), facts.overview()),
        2 => ("Summarise the chart in a few words.".into(), facts.summary()),
        3 => (facts.largest_question().into(), facts.largest_answer()),
        4 => {
            let item = rng.random_range(0..chart.labels.len());
            (format!("What is the value of {}?", chart.labels[item]), facts.value_answer(item))
        }
        _ => ("What is the title of the chart?".into(), facts.title_answer()),
    }
}

/// The phrase that is followed by the name of the largest item.
pub(super) fn largest_phrase(kind: ChartKind) -> &'static str {
    match kind {
        ChartKind::Bar => "tallest bar is",
        ChartKind::Line => "highest point is",
        ChartKind::Pie => "largest slice is",
    }
}

struct Facts<'a> {
    chart: &'a Chart,
    kind: &'static str,
    unit: &'static str,
    largest: String,
    smallest: String,
}

impl<'a> Facts<'a> {
    fn of(chart: &'a Chart) -> Self {
        let (kind, unit, low) = match chart.kind {
            ChartKind::Bar => ("bar chart", "bars", "lowest bar is"),
            ChartKind::Line => ("line chart", "points", "lowest point is"),
            ChartKind::Pie => ("pie chart", "slices", "smallest slice is"),
        };
        let largest = format!("{} {}", largest_phrase(chart.kind), item(chart, chart.largest()));
        Self { chart, kind, unit, largest, smallest: format!("{low} {}", item(chart, chart.smallest())) }
    }

    fn description(&self) -> String {
        format!(
            "The {} shows {} for {}. It reads {}. The {}, and the {}. {}",
            self.kind,
            self.chart.title,
            self.counted(),
            self.list(None),
            self.largest,
            self.smallest,
            self.course()
        )
    }

    fn overview(&self) -> String {
        format!(
            "It is a {} of {}. The {} are {}. Of these the {}, while the {}.",
            self.kind,
            self.chart.title,
            self.counted(),
            self.list(None),
            self.largest,
            self.smallest
        )
    }

    fn summary(&self) -> String {
        format!(
            "{} in one {}: the {}, the {}. {} In order, the {} are {}.",
            self.chart.title,
            self.kind,
            self.largest,
            self.smallest,
            self.course(),
            self.chart.group,
            self.list(None)
        )
    }

    fn largest_question(&self) -> &'static str {
        match self.chart.kind {
            ChartKind::Bar => "Which bar is the tallest?",
            ChartKind::Line => "Where is the highest point?",
            ChartKind::Pie => "Which slice is the largest?",
        }
    }

    fn largest_answer(&self) -> String {
        format!(
            "The {}. The other {} of this {}, titled {}, are {}. The {}.",
            self.largest,
            self.unit,
            self.kind,
            self.chart.title,
            self.list(Some(self.chart.largest())),
            self.smallest
        )
    }

    fn value_answer(&self, asked: usize) -> String {
        let place = if asked == self.chart.largest() {
            "more than any other"
        } else if asked == self.chart.smallest() {
            "less than any other"
        } else {
            "neither the most nor the least"
        };
        format!(
            "The value of {} is {}, which is {place}. The {} shows {}, and its other {} are {}. The {}.",
            self.chart.labels[asked],
            self.chart.values[asked],
            self.kind,
            self.chart.title,
            self.chart.group,
            self.list(Some(asked)),
            self.largest
        )
    }

    fn title_answer(&self) -> String {
        format!(
            "The title is {}. Below it, a {} compares {}: {}. The {}. {}",
            self.chart.title,
            self.kind,
            self.counted(),
            self.list(None),
            self.largest,
            self.course()
        )
    }

    fn counted(&self) -> String {
        format!("{} {}", words::count(self.chart.labels.len()), self.chart.group)
    }

    /// "Mon at 34, Tue at 12 and Wed at 55", without the item `except`.
    fn list(&self, except: Option<usize>) -> String {
        let items: Vec<String> =
            (0..self.chart.labels.len()).filter(|i| Some(*i) != except).map(|i| item(self.chart, i)).collect();
        match items.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
            _ => items.concat(),
        }
    }

    /// How the last item compares with the first.
    fn course(&self) -> String {
        let (first, last) = (0, self.chart.labels.len() - 1);
        let up = self.chart.values[last] > self.chart.values[first];
        let (from, to) = (&self.chart.labels[first], &self.chart.labels[last]);
        match (self.chart.kind, up) {
            (ChartKind::Bar, true) => format!("The bars grow from {from} to {to}."),
            (ChartKind::Bar, false) => format!("The bars shrink from {from} to {to}."),
            (ChartKind::Line, true) => format!("Overall the line rises from {from} to {to}."),
            (ChartKind::Line, false) => format!("Overall the line falls from {from} to {to}."),
            (ChartKind::Pie, true) => format!("The share of {to} exceeds that of {from}."),
            (ChartKind::Pie, false) => format!("The share of {to} is below that of {from}."),
        }
    }
}

fn item(chart: &Chart, index: usize) -> String {
    format!("{} at {}", chart.labels[index], chart.values[index])
}
