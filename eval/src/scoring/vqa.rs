//! VQA accuracy: agreement with ten annotators, after normalising both sides.

/// Matches among the other annotators that count as full agreement.
const FULL: f64 = 3.0;

/// Punctuation that goes; apostrophes and full stops have rules of their own.
const PUNCTUATION: &str = ";/[]\"{}()=+\\_-><@`,?!";

/// Number words; "none" counts as 0.
const NUMBERS: [(&str, &str); 12] = [
    ("none", "0"),
    ("zero", "0"),
    ("one", "1"),
    ("two", "2"),
    ("three", "3"),
    ("four", "4"),
    ("five", "5"),
    ("six", "6"),
    ("seven", "7"),
    ("eight", "8"),
    ("nine", "9"),
    ("ten", "10"),
];

/// Contractions typed without their apostrophe. Those that are words of their own ("its", "well", "ill") stay as they are.
const CONTRACTIONS: [&str; 55] = [
    "ain't",
    "aren't",
    "can't",
    "could've",
    "couldn't",
    "didn't",
    "doesn't",
    "don't",
    "hadn't",
    "hasn't",
    "haven't",
    "he'd",
    "he's",
    "how'd",
    "how'll",
    "how's",
    "i'm",
    "i've",
    "isn't",
    "it'd",
    "it'll",
    "ma'am",
    "mightn't",
    "might've",
    "mustn't",
    "must've",
    "needn't",
    "o'clock",
    "shan't",
    "should've",
    "shouldn't",
    "that's",
    "there'd",
    "there's",
    "they'd",
    "they'll",
    "they're",
    "they've",
    "wasn't",
    "we've",
    "weren't",
    "what'll",
    "what're",
    "what's",
    "where'd",
    "where's",
    "who'd",
    "who'll",
    "who's",
    "won't",
    "would've",
    "wouldn't",
    "y'all",
    "you'd",
    "you're",
];

/// The score of `answer` against the annotators' answers: for each of them, matches among the others / 3, at most 1; the mean.
/// 0 without annotators.
pub fn accuracy(answer: &str, annotators: &[String]) -> f64 {
    let answer = normalise(answer);
    let matches: Vec<bool> = annotators.iter().map(|a| normalise(a) == answer).collect();
    let all = matches.iter().filter(|m| **m).count();
    let sum: f64 = matches.iter().map(|own| ((all - usize::from(*own)) as f64 / FULL).min(1.0)).sum();
    if annotators.is_empty() { 0.0 } else { sum / annotators.len() as f64 }
}

/// Lower case, punctuation out, number words to digits, articles out, contractions restored.
pub fn normalise(text: &str) -> String {
    let text = text.replace(['\n', '\t'], " ").trim().to_lowercase();
    let words = without_punctuation(&text);
    words.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the")).map(word).collect::<Vec<_>>().join(" ")
}

fn word(word: &str) -> String {
    if let Some((_, digit)) = NUMBERS.iter().find(|(name, _)| *name == word) {
        return (*digit).into();
    }
    CONTRACTIONS.iter().find(|c| c.replace('\'', "") == word).map_or(word, |c| c).into()
}

/// A mark that stands beside a space anywhere in the text vanishes, as does every mark in a text with a comma between digits
/// ("1,000" is one number); any other joins two words and becomes a space. A full stop goes unless a digit follows it.
fn without_punctuation(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let thousands = chars.windows(3).any(|w| w[0].is_ascii_digit() && w[1] == ',' && w[2].is_ascii_digit());
    let beside_a_space =
        |mark: char| chars.windows(2).any(|w| (w[0] == mark && w[1] == ' ') || (w[0] == ' ' && w[1] == mark));
    let mut out = String::with_capacity(text.len());
    for (i, &c) in chars.iter().enumerate() {
        if PUNCTUATION.contains(c) {
            if !thousands && !beside_a_space(c) {
                out.push(' ');
            }
        } else if c != '.' || chars.get(i + 1).is_some_and(char::is_ascii_digit) {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{accuracy, normalise};

    fn annotators(counts: &[(&str, usize)]) -> Vec<String> {
        counts.iter().flat_map(|(a, n)| std::iter::repeat_n(a.to_string(), *n)).collect()
    }

    #[test]
    fn each_annotator_is_compared_with_the_other_nine() {
        // 3 of 10 say "red": those three see 2 others (2/3), the other seven see 3 (1): (3 * 2/3 + 7) / 10.
        let ten = annotators(&[("red", 3), ("blue", 7)]);
        assert!((accuracy("Red", &ten) - 0.9).abs() < 1e-12);
        assert_eq!(accuracy("blue", &ten), 1.0);
        assert_eq!(accuracy("green", &ten), 0.0);
        // One alone: nine of the ten leave-one-out subsets hold it: 9 * 1/3 / 10.
        assert!((accuracy("x", &annotators(&[("x", 1), ("y", 9)])) - 0.3).abs() < 1e-12);
        assert_eq!(accuracy("x", &[]), 0.0);
    }

    #[test]
    fn both_sides_are_normalised() {
        assert_eq!(normalise("The  dog.\n"), "dog");
        assert_eq!(normalise("Two"), "2");
        assert_eq!(normalise("none"), "0");
        assert_eq!(normalise("dont know"), "don't know");
        assert_eq!(normalise("A cat, an owl"), "cat owl");
        assert_eq!(accuracy("2", &annotators(&[("two", 10)])), 1.0);
    }

    #[test]
    fn punctuation_inside_numbers_and_words() {
        assert_eq!(normalise("1.5"), "1.5");
        assert_eq!(normalise("1,000"), "1000");
        assert_eq!(normalise("t-shirt"), "t shirt");
        assert_eq!(normalise("yes!"), "yes");
        assert_eq!(normalise("its"), "its");
    }
}
