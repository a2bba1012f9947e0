//! The two drawings of the page, as inline SVG: bars with intervals, and lines over positions.

use std::fmt::Write;

/// Colours of the series, in order; told apart also by those who see red and green alike.
pub const COLOURS: [&str; 6] = ["#2f6db5", "#d9762b", "#3f8f6b", "#8d5fb0", "#b8485a", "#6b7480"];

/// A horizontal bar with an optional interval.
pub struct Bar {
    /// What stands before it.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// A whisker from low to high.
    pub interval: Option<[f64; 2]>,
    /// Index into [`COLOURS`].
    pub colour: usize,
}

/// A named line over positions 1, 2, ..
pub struct Line {
    /// The series' name.
    pub label: String,
    /// Values 0 to 1.
    pub values: Vec<f64>,
    /// Index into [`COLOURS`].
    pub colour: usize,
}

/// Text safe inside HTML and SVG.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Horizontal bars from 0, a dashed rule at `reference`, values printed behind the whisker. `unit` follows each value.
pub fn bars(bars: &[Bar], reference: f64, unit: &str) -> String {
    const LEFT: f64 = 140.0;
    const WIDE: f64 = 290.0;
    const ROW: f64 = 30.0;
    let top = bars.iter().map(|b| b.interval.map_or(b.value, |[_, high]| high.max(b.value))).fold(reference, f64::max);
    let x = |value: f64| LEFT + WIDE * value / top.max(1e-9);
    let height = ROW * bars.len() as f64 + 26.0;
    let mut svg = open(LEFT + WIDE + 70.0, height);
    let bottom = height - 18.0;
    let _ = write!(
        svg,
        r#"<path class="rule" d="M{0:.1} 0V{bottom}"/><text class="tick" x="{0:.1}" y="{1}" text-anchor="middle">{reference}{unit}</text>"#,
        x(reference),
        height - 5.0,
    );
    for (i, bar) in bars.iter().enumerate() {
        let y = ROW * i as f64 + 6.0;
        let middle = y + 9.0;
        let _ = write!(
            svg,
            r#"<text x="{}" y="{}" text-anchor="end">{}</text><rect x="{LEFT}" y="{y}" width="{:.1}" height="18" rx="2" fill="{}"/>"#,
            LEFT - 8.0,
            middle + 4.0,
            escape(&bar.label),
            x(bar.value) - LEFT,
            colour(bar.colour),
        );
        let mut end = x(bar.value);
        if let Some([low, high]) = bar.interval {
            end = end.max(x(high));
            let _ = write!(
                svg,
                r#"<path class="whisker" d="M{0:.1} {middle}H{1:.1}M{0:.1} {2}v10M{1:.1} {2}v10"/>"#,
                x(low),
                x(high),
                middle - 5.0,
            );
        }
        let _ = write!(svg, r#"<text x="{:.1}" y="{}">{:.2}{unit}</text>"#, end + 7.0, middle + 4.0, bar.value);
    }
    svg.push_str("</svg>");
    svg
}

/// Lines over positions with a 0-100% axis and a legend below.
pub fn lines(lines: &[Line]) -> String {
    const LEFT: f64 = 46.0;
    const WIDE: f64 = 450.0;
    const HIGH: f64 = 190.0;
    const TOP: f64 = 10.0;
    let positions = lines.iter().map(|l| l.values.len()).max().unwrap_or(0);
    let x = |i: usize| LEFT + 20.0 + (WIDE - 40.0) * i as f64 / (positions.max(2) - 1) as f64;
    let y = |value: f64| TOP + HIGH * (1.0 - value);
    let legend = TOP + HIGH + 44.0;
    let mut svg = open(LEFT + WIDE + 10.0, legend + 18.0 * lines.len() as f64);
    for percent in [0, 25, 50, 75, 100] {
        let at = y(percent as f64 / 100.0);
        let _ = write!(
            svg,
            r#"<path class="grid" d="M{LEFT} {at:.1}h{WIDE}"/><text class="tick" x="{}" y="{:.1}" text-anchor="end">{percent}%</text>"#,
            LEFT - 6.0,
            at + 4.0,
        );
    }
    for i in 0..positions {
        let _ = write!(
            svg,
            r#"<text class="tick" x="{:.1}" y="{}" text-anchor="middle">{}</text>"#,
            x(i),
            TOP + HIGH + 18.0,
            i + 1
        );
    }
    for (row, line) in lines.iter().enumerate() {
        let points: Vec<String> =
            line.values.iter().enumerate().map(|(i, v)| format!("{:.1},{:.1}", x(i), y(*v))).collect();
        let ink = colour(line.colour);
        let _ = write!(svg, r#"<polyline fill="none" stroke="{ink}" stroke-width="2" points="{}"/>"#, points.join(" "));
        for point in &points {
            let (px, py) = point.split_once(',').unwrap_or(("0", "0"));
            let _ = write!(svg, r#"<circle cx="{px}" cy="{py}" r="3" fill="{ink}"/>"#);
        }
        let at = legend + 18.0 * row as f64;
        let _ = write!(
            svg,
            r#"<rect x="{LEFT}" y="{}" width="14" height="4" fill="{ink}"/><text x="{}" y="{at}">{}</text>"#,
            at - 7.0,
            LEFT + 22.0,
            escape(&line.label)
        );
    }
    svg.push_str("</svg>");
    svg
}

fn open(width: f64, height: f64) -> String {
    format!(r#"<svg viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" height="{height:.0}" role="img">"#)
}

fn colour(i: usize) -> &'static str {
    COLOURS[i % COLOURS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_names_are_escaped() {
        let svg = bars(&[Bar { label: "<a>".into(), value: 2.0, interval: None, colour: 0 }], 1.0, "x");
        assert!(svg.contains("width=\"290.0\""));
        assert!(svg.contains("&lt;a&gt;"));
        assert!(svg.contains("2.00x"));
    }

    #[test]
    fn a_line_has_a_point_per_position() {
        let svg = lines(&[Line { label: "a".into(), values: vec![1.0, 0.5, 0.0], colour: 1 }]);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert!(svg.contains("66.0,10.0"));
    }
}
