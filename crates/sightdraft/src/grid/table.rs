//! The grid's table: one line per variant, mean and spread over its seeds.

use serde::Serialize;

use super::{Grid, Outcome};

/// Mean and sample standard deviation over seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Spread {
    pub mean: f64,
    /// None of a single seed.
    pub sd: Option<f64>,
}

/// One variant over its seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    pub variant: String,
    /// What the recipe's objective is called.
    pub objective: String,
    /// Held-out accepted drafts per pass of the best checkpoints.
    pub accepted: Spread,
    /// The same of the last checkpoints.
    pub last: Spread,
    /// Gain over the first variant in percent, seed by seed.
    pub gain: Spread,
    /// Accepted of every seed, in the grid's order.
    pub seeds: Vec<f64>,
}

/// The lines of a finished grid, in the file's order.
pub fn lines(grid: &Grid, outcomes: &[Outcome]) -> Vec<Line> {
    let of = |name: &str| outcomes.iter().filter(|o| o.cell.variant == name).collect::<Vec<_>>();
    let best = |runs: &[&Outcome]| runs.iter().map(|run| run.best.held_out.accepted).collect::<Vec<_>>();
    let first = best(&of(&grid.variants[0].name));
    let line = |name: &String| {
        let runs = of(name);
        let accepted = best(&runs);
        let gains: Vec<f64> = accepted.iter().zip(&first).map(|(a, b)| 100.0 * (a / b.max(1e-9) - 1.0)).collect();
        Line {
            variant: name.clone(),
            objective: runs.first().map_or(String::new(), |r| r.cell.recipe.train.objective.objective().name()),
            accepted: spread(&accepted),
            last: spread(&runs.iter().map(|run| run.last.accepted).collect::<Vec<_>>()),
            gain: spread(&gains),
            seeds: accepted,
        }
    };
    grid.variants.iter().map(|variant| line(&variant.name)).collect()
}

fn spread(values: &[f64]) -> Spread {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count.max(1.0);
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    Spread { mean, sd: (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt()) }
}

/// The table as text, every column aligned.
pub fn render(lines: &[Line]) -> String {
    let sd = |spread: &Spread, digits: usize| spread.sd.map_or("-".into(), |sd| format!("{sd:.digits$}"));
    let heads = ["variant", "accepted", "sd", "last", "sd", "gain", "sd"].map(String::from);
    let cells = lines.iter().map(|line| {
        [
            line.variant.clone(),
            format!("{:.3}", line.accepted.mean),
            sd(&line.accepted, 3),
            format!("{:.3}", line.last.mean),
            sd(&line.last, 3),
            format!("{:+.1}%", line.gain.mean),
            sd(&line.gain, 1),
        ]
    });
    let rows: Vec<[String; 7]> = std::iter::once(heads).chain(cells).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let line = |row: &[String; 7]| {
        let words = format!("{:<1$}", row[0], widths[0]);
        let numbers = row.iter().zip(&widths).skip(1).map(|(cell, width)| format!("  {cell:>width$}"));
        words + &numbers.collect::<String>() + "\n"
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_spread_over_seeds() {
        let Spread { mean, sd } = spread(&[1.0, 2.0, 6.0]);
        assert_eq!(mean, 3.0);
        assert!((sd.unwrap() - 7f64.sqrt()).abs() < 1e-12);
        assert_eq!(spread(&[2.0]).sd, None);
    }

    #[test]
    fn columns_line_up() {
        let one = |variant: &str, mean| Line {
            variant: variant.into(),
            objective: "soft_ce".into(),
            accepted: Spread { mean, sd: Some(0.01) },
            last: Spread { mean, sd: None },
            gain: Spread { mean: 100.0 * (mean - 1.0), sd: Some(2.0) },
            seeds: vec![mean],
        };
        let text = render(&[one("soft_ce", 1.0), one("a long variant", 1.125)]);
        let widths: Vec<usize> = text.lines().map(str::len).collect();
        assert!(widths.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
        assert!(text.contains("a long variant     1.125  0.010  1.125   -  +12.5%  2.0"), "{text}");
    }
}
