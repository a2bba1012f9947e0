//! The page: one file, no scripts, nothing fetched.

use std::fmt::Write;

use super::svg::{self, Bar, Line, escape};
use super::table::lossless;
use crate::metrics::ByPosition;
use crate::{Report, Run};

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2330;--soft:#5b6472;--line:#d9dde3;--page:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ee;--soft:#9aa4b2;--line:#39414d;--page:#14181f}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page);max-width:68rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}h3{font-size:.95rem;margin:1rem 0 .2rem;color:var(--soft)}\
.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap;font-size:.9rem}\
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid var(--line)}\
th{font-weight:600;color:var(--soft);white-space:normal;vertical-align:bottom;line-height:1.25}th:first-child,td:first-child{text-align:left;padding-left:0}\
svg{max-width:100%;height:auto;font:13px system-ui,sans-serif}svg text{fill:var(--ink);paint-order:stroke;stroke:var(--page);stroke-width:4px}svg .tick{fill:var(--soft);font-size:11px}\
.whisker{stroke:var(--ink);stroke-width:1.4;fill:none}.rule{stroke:var(--soft);stroke-dasharray:3 3}\
.grid{stroke:var(--line)}.charts{display:flex;flex-wrap:wrap;gap:1rem 2.5rem}dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem}\
dt{color:var(--soft)}dd{margin:0;overflow-wrap:anywhere}code{font-size:.85rem;white-space:pre-wrap}";

/// The report as a self-contained page.
pub fn render(report: &Report) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>Sightdraft report</title><style>{STYLE}</style></head><body><h1>Speculative decoding, measured</h1>"
    );
    for group in groups(report) {
        section(&mut page, &group);
    }
    provenance(&mut page, report);
    page.push_str("</body></html>\n");
    page
}

/// Runs that share target, benchmark and temperature, in order of first appearance.
fn groups(report: &Report) -> Vec<Vec<&Run>> {
    let mut groups: Vec<Vec<&Run>> = Vec::new();
    for run in &report.runs {
        let same = |group: &&mut Vec<&Run>| {
            let first = group[0];
            first.target == run.target && first.benchmark == run.benchmark && first.temperature == run.temperature
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run),
            None => groups.push(vec![run]),
        }
    }
    groups
}

fn section(page: &mut String, runs: &[&Run]) {
    let first = runs[0];
    let _ = write!(
        page,
        "<h2>{} on {}, temperature {}</h2>",
        escape(&first.target),
        escape(&first.benchmark),
        first.temperature
    );
    table(page, runs);
    let bars: Vec<Bar> = runs
        .iter()
        .enumerate()
        .map(|(i, run)| Bar {
            label: run.name.clone(),
            value: run.summary.speedup,
            interval: run.summary.speedup_interval.filter(|_| run.draft.is_some()),
            colour: palette(i),
        })
        .collect();
    let joint = lines(runs, |by| &by.joint);
    let conditional = lines(runs, |by| &by.conditional);
    let _ = write!(
        page,
        "<div class=\"charts\"><div><h3>Speedup over plain decoding (95% interval over prompts)</h3>{}</div>",
        svg::bars(&bars, 1.0, "×")
    );
    if !joint.is_empty() {
        let _ = write!(
            page,
            "</div><div class=\"charts\"><div><h3>Passes that accept at least n drafts</h3>{}</div>\
             <div><h3>The same among passes that accepted n-1 and had an nth guess</h3>{}</div>",
            svg::lines(&joint),
            svg::lines(&conditional)
        );
    }
    page.push_str("</div>");
}

/// One line per draft over the positions in the draft.
fn lines(runs: &[&Run], part: fn(&ByPosition) -> &Vec<f64>) -> Vec<Line> {
    let drafts = runs.iter().enumerate().filter(|(_, run)| run.draft.is_some());
    drafts
        .map(|(i, run)| Line {
            label: run.name.clone(),
            values: part(&run.summary.acceptance_by_position).clone(),
            colour: palette(i),
        })
        .filter(|line| !line.values.is_empty())
        .collect()
}

/// Plain decoding (the first run of a group) is grey; drafts take the other colours in turn.
fn palette(i: usize) -> usize {
    let grey = svg::COLOURS.len() - 1;
    if i == 0 { grey } else { (i - 1) % grey }
}

fn table(page: &mut String, runs: &[&Run]) {
    let scored = runs.iter().any(|run| run.summary.score.is_some());
    page.push_str(
        "<div class=\"wide\"><table><tr><th>run</th><th>accepted per pass (mean)</th><th>emitted per pass (mean)</th>\
         <th>speedup (mean)</th><th>tokens/s</th><th>lossless</th><th>greedy path pruned</th>\
         <th>greedy path accepted</th><th>seconds: prefill/ draft/verify/other</th>",
    );
    page.push_str(if scored { "<th>score</th></tr>" } else { "</tr>" });
    for run in runs {
        let s = &run.summary;
        let share = |value: f64| if run.draft.is_some() { format!("{:.1}%", 100.0 * value) } else { "–".into() };
        let _ = write!(
            page,
            "<tr><td>{}</td><td>{:.3} ({:.3})</td><td>{:.3} ({:.3})</td><td>{:.2}× ({:.2}×)</td><td>{:.1}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{:.1}/{:.1}/{:.1}/{:.1}</td>",
            escape(&run.name),
            s.accepted_per_pass,
            s.accepted_per_pass_mean,
            s.emitted_per_pass,
            s.emitted_per_pass_mean,
            s.speedup,
            s.speedup_mean,
            s.tokens_per_second,
            lossless(run),
            share(s.greedy_path_pruned),
            share(s.accepted_path_is_greedy),
            s.seconds.prefill,
            s.seconds.draft,
            s.seconds.verify,
            s.seconds.other,
        );
        if scored {
            let _ = write!(page, "<td>{}</td>", s.score.map_or("–".into(), |v| format!("{v:.3}")));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
}

fn provenance(page: &mut String, report: &Report) {
    page.push_str("<h2>How it was measured</h2><dl>");
    let mut line = |name: &str, value: String| {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), value);
    };
    let tree = &report.tree;
    line("device", escape(&report.device));
    line("seed", report.seed.to_string());
    line("tree", format!("{} nodes, depth {}, top {}", tree.total, tree.depth, tree.top_k));
    line("sampling", format!("top-p {}, top-k {}", report.top_p, report.top_k));
    let warm_up = format!("prompts per run outside the clock: {}, {:.1} s", report.warm_up, report.warm_up_seconds);
    line("warm-up", warm_up);
    if report.shard.of > 1 {
        line("part", report.shard.to_string());
    }
    for (name, version) in &report.versions {
        line(name, escape(version));
    }
    for (name, hash) in &report.checkpoints {
        line(&format!("weights of {name}"), format!("<code>sha256 {}</code>", escape(hash)));
    }
    for (name, text) in &report.instructions {
        line(&format!("prompt of {name}"), format!("<code>{}</code>", escape(text)));
    }
    page.push_str(
        "</dl><p>Accepted counts draft tokens per target pass, emitted adds the target's own token. Speedup is plain seconds per \
         token over speculative seconds per token, of the sums; both decode the same prompts in turn with the same program. In brackets: means over answers.</p>",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_page_is_whole_escaped_and_self_contained() {
        let page = render(&report());
        assert!(page.contains("soft_ce &lt;&amp;&gt;"));
        assert!(!page.contains("soft_ce <&>"));
        assert_eq!(page.matches("<svg").count(), 3);
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        for foreign in ["<script", "http://", "https://", "NaN"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
    }

    #[test]
    fn temperatures_are_sections_of_their_own() {
        let mut report = report();
        let mut hot = report.runs[0].clone();
        hot.temperature = 1.0;
        report.runs.push(hot);
        assert_eq!(render(&report).matches("<h2>").count(), 3);
    }
}
