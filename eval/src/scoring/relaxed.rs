//! ChartQA's relaxed accuracy.

/// Most relative error that still counts.
const TOLERANCE: f64 = 0.05;

/// Whether `answer` is right: both parse as numbers and differ by at most 5% of `target`, otherwise the texts are equal ignoring
/// case. A percent sign divides by 100. A target of 0 has no relative error and is compared as text; so is a number with
/// thousands separators, which does not parse.
pub fn is_right(answer: &str, target: &str) -> bool {
    let (answer, target) = (answer.trim(), target.trim());
    match (number(answer), number(target)) {
        (Some(a), Some(t)) if t != 0.0 => (a - t).abs() / t.abs() <= TOLERANCE,
        _ => answer.to_lowercase() == target.to_lowercase(),
    }
}

fn number(text: &str) -> Option<f64> {
    match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok().map(|value| value / 100.0),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_right;

    #[test]
    fn five_percent_of_the_target_is_right_and_more_is_not() {
        assert!(is_right("105", "100"));
        assert!(is_right("95", "100"));
        assert!(!is_right("105.1", "100"));
        // 5% of the target, not of the answer.
        assert!(!is_right("100", "95"));
        assert!(is_right("-10.2", "-10"));
        assert!(!is_right("10", "-10"));
    }

    #[test]
    fn a_percent_sign_divides_by_a_hundred() {
        assert!(!is_right("5", "5%"));
        assert!(is_right("0.05", "5%"));
        assert!(is_right("5%", "5%"));
    }

    #[test]
    fn zero_and_thousands_separators_are_text() {
        assert!(is_right("0", "0"));
        assert!(!is_right("0.001", "0"));
        assert!(!is_right("1000", "1,000"));
        assert!(is_right("1,000", "1,000"));
    }

    #[test]
    fn words_ignore_case_only() {
        assert!(is_right("yes", "Yes"));
        assert!(!is_right("Yes.", "Yes"));
    }
}
