//! The aligned table.

use crate::{Report, Run};

const HEAD: [&str; 11] = [
    "benchmark",
    "T",
    "run",
    "accepted/pass",
    "emitted/pass",
    "speedup",
    "95% interval",
    "tokens/s",
    "lossless",
    "prefill/draft/verify/other s",
    "score",
];

/// Columns of words, aligned left; numbers are aligned right.
const WORDS: [usize; 2] = [0, 2];

/// The report as text, a line per run.
pub fn render(report: &Report) -> String {
    let mut rows: Vec<Vec<String>> = vec![HEAD.iter().map(|h| h.to_string()).collect()];
    rows.extend(report.runs.iter().map(row));
    let has_score = report.runs.iter().any(|run| run.summary.score.is_some());
    let columns = if has_score { HEAD.len() } else { HEAD.len() - 1 };
    let mut text = align(&rows, columns);
    text.push('\n');
    for run in &report.runs {
        if let Some(note) = diagnosis(run) {
            text.push_str(&note);
        }
    }
    text.push_str(&format!(
        "device {}, seed {}, tree {} nodes / depth {} / top {}\n",
        report.device, report.seed, report.tree.total, report.tree.depth, report.tree.top_k
    ));
    text
}

fn row(run: &Run) -> Vec<String> {
    let s = &run.summary;
    vec![
        run.benchmark.clone(),
        run.temperature.to_string(),
        run.name.clone(),
        format!("{:.3}", s.accepted_per_pass),
        format!("{:.3}", s.emitted_per_pass),
        format!("{:.2}x", s.speedup),
        s.speedup_interval
            .filter(|_| run.draft.is_some())
            .map_or("-".into(), |[low, high]| format!("{low:.2}-{high:.2}")),
        format!("{:.1}", s.tokens_per_second),
        lossless(run),
        format!("{:.1}/{:.1}/{:.1}/{:.1}", s.seconds.prefill, s.seconds.draft, s.seconds.verify, s.seconds.other),
        s.score.map_or("-".into(), |score| format!("{score:.3}")),
    ]
}

/// `same/of`, ties named; a dash where answers are sampled.
pub fn lossless(run: &Run) -> String {
    let lossless = &run.summary.lossless;
    match (lossless.of, lossless.ties) {
        (0, _) => "-".into(),
        (of, 0) => format!("{}/{of}", lossless.same),
        (of, ties) => format!("{}/{of} ({ties} at ties)", lossless.same),
    }
}

/// The two numbers on how the draft's greedy path fares in its own tree.
fn diagnosis(run: &Run) -> Option<String> {
    run.draft.as_ref()?;
    Some(format!(
        "{} on {} at T={}: greedy path pruned from its own tree in {:.1}% of passes, accepted path was the greedy one in {:.1}%\n",
        run.name,
        run.benchmark,
        run.temperature,
        100.0 * run.summary.greedy_path_pruned,
        100.0 * run.summary.accepted_path_is_greedy
    ))
}

fn align(rows: &[Vec<String>], columns: usize) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = (0..columns)
            .map(|c| {
                if WORDS.contains(&c) {
                    format!("{:<w$}", row[c], w = widths[c])
                } else {
                    format!("{:>w$}", row[c], w = widths[c])
                }
            })
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn columns_line_up_and_the_diagnosis_is_said() {
        let text = render(&report());
        let lines: Vec<&str> = text.lines().collect();
        let end = |line: &str, what: &str| line.find(what).unwrap() + what.len();
        assert_eq!(end(lines[0], "accepted/pass"), end(lines[1], "0.000"));
        assert_eq!(end(lines[0], "lossless"), end(lines[2], "4/4"));
        assert!(!text.contains("score"));
        assert!(text.contains("greedy path pruned"));
    }

    #[test]
    fn ties_are_named() {
        let mut run = report().runs.remove(1);
        run.summary.lossless = crate::metrics::Lossless { same: 3, of: 4, ties: 1 };
        assert_eq!(lossless(&run), "3/4 (1 at ties)");
        run.summary.lossless = Default::default();
        assert_eq!(lossless(&run), "-");
    }
}
