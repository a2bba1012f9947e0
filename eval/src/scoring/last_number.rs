//! GSM8K: the last number of the answer.

/// The last number in `text`: digits with optional sign, commas between digits stripped, one decimal point. The full stop that
/// ends a sentence is no part of it, and a dash counts as a sign only where no digit or letter stands before it ("10-5").
pub fn last_number(text: &str) -> Option<f64> {
    let bytes = text.as_bytes();
    let mut last = None;
    let mut i = 0;
    while i < bytes.len() {
        let fraction = bytes[i] == b'.' && bytes.get(i + 1).is_some_and(u8::is_ascii_digit);
        if !bytes[i].is_ascii_digit() && !fraction {
            i += 1;
            continue;
        }
        let negative = i > 0
            && bytes[i - 1] == b'-'
            && !i.checked_sub(2).is_some_and(|before| bytes[before].is_ascii_alphanumeric());
        let (digits, end) = read(bytes, i);
        if let Ok(value) = digits.parse::<f64>() {
            last = Some(if negative { -value } else { value });
        }
        i = end;
    }
    last
}

/// The digits of the number at `start` and where it ends.
fn read(bytes: &[u8], start: usize) -> (String, usize) {
    let digit_follows = |i: usize| bytes.get(i + 1).is_some_and(u8::is_ascii_digit);
    let mut digits = String::new();
    let mut i = start;
    while i < bytes.len() {
        match bytes[i] {
            digit if digit.is_ascii_digit() => digits.push(digit as char),
            b',' if digit_follows(i) => {}
            b'.' if digit_follows(i) && !digits.contains('.') => digits.push('.'),
            _ => break,
        }
        i += 1;
    }
    (digits, i)
}

/// Whether the last number of `answer` is the last number of the reference solution (which ends in `#### n`).
pub fn is_right(answer: &str, reference: &str) -> bool {
    match (last_number(answer), last_number(reference)) {
        (Some(a), Some(r)) => (a - r).abs() <= 1e-6 * r.abs().max(1.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_right, last_number};

    #[test]
    fn commas_signs_and_full_stops() {
        assert_eq!(last_number("She pays $1,234.50."), Some(1234.5));
        assert_eq!(last_number("first 3, then 18."), Some(18.0));
        assert_eq!(last_number("it falls to -7 degrees"), Some(-7.0));
        assert_eq!(last_number("10-5"), Some(5.0));
        assert_eq!(last_number("half is .5"), Some(0.5));
        assert_eq!(last_number("**42**\n"), Some(42.0));
        assert_eq!(last_number("none at all – sorry"), None);
    }

    #[test]
    fn the_reference_ends_in_its_answer() {
        assert!(is_right("So the answer is 1,080 bottles.", "9 * 120 = <<9*120=1080>>1080\n#### 1,080"));
        assert!(is_right("18.00", "#### 18"));
        assert!(!is_right("18 eggs, or 1.5 dozen", "#### 18"));
        assert!(!is_right("no idea", "#### 18"));
    }
}
