//! What is asked of a model behind the question: one prompt to be scored, another to be timed, never mixed.

use std::fmt;
use std::str::FromStr;

use sightdraft_core::{Error, Result};

/// Goes before the code of a HumanEval problem, as in EAGLE's question file.
pub const HUMANEVAL: &str = "Complete the code I provided.\n";

/// VQAv2, TextVQA, VizWiz, GQA, MME and POPE, scored.
const SHORT_PHRASE: &str = "\nAnswer the question using a single word or phrase.";
/// VizWiz, scored, where the photo does not show the answer.
const UNANSWERABLE: &str = "\nWhen the provided information is insufficient, respond with 'Unanswerable'.\nAnswer the question using a single word or phrase.";
/// ChartQA, scored.
const SINGLE_WORD: &str = "\nAnswer the question with a single word.";
/// ScienceQA and AI2D, scored.
const LETTER: &str = "\nAnswer with the option's letter from the given choices directly.";
/// COCO captions, scored.
const CAPTION: &str = "Provide a one-sentence caption for the provided image.";
/// MSD's request for a long answer.
const MSD: &str =
    "\nFor the following question, provide a detailed explanation of your reasoning leading to the answer.";
/// ViSpec's request for a long answer; the line break before it is ours.
const VISPEC: &str = "\nPlease answer with an explanation.";
/// ViSpec's request for a long caption.
const VISPEC_CAPTION: &str = "Please provide a detailed description of the given image.";

/// How questions about images are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The official short-answer prompt: for scores.
    Official,
    /// MSD's long answers: for speed.
    Msd,
    /// ViSpec's long answers: for speed.
    Vispec,
}

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 3] = [Self::Official, Self::Msd, Self::Vispec];

    /// The name that options use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Official => "official",
            Self::Msd => "msd",
            Self::Vispec => "vispec",
        }
    }

    /// What follows the question on `benchmark` (`vqav2`, `chartqa`, ..); empty where the question stands alone. For
    /// `coco_caption`, which has no question, it is the whole request.
    ///
    /// # Errors
    /// A benchmark that is not known, or that the preset's paper does not ask.
    pub fn suffix(self, benchmark: &str) -> Result<&'static str> {
        let suffix = match (self, benchmark) {
            (Self::Official, _) => official(benchmark),
            (Self::Msd, "chartqa" | "textvqa" | "vqav2" | "mme") => Some(MSD),
            (Self::Vispec, "coco_caption") => Some(VISPEC_CAPTION),
            (Self::Vispec, _) if official(benchmark).is_some() => Some(VISPEC),
            _ => None,
        };
        suffix.ok_or_else(|| {
            Error::invalid(
                "benchmark",
                format!("one that the prompt preset `{self}` covers"),
                format!("`{benchmark}`"),
                "choose another preset or benchmark",
            )
        })
    }

    /// New tokens at most, as the benchmark (scores) or the preset's paper (speed) allows.
    pub fn max_new(self, benchmark: &str) -> usize {
        match (self, benchmark) {
            (Self::Msd, _) => 512,
            (Self::Vispec, _) | (Self::Official, "mmvet") => 1024,
            (Self::Official, "pope" | "hallusionbench") => 128,
            (Self::Official, "coco_caption") => 64,
            (Self::Official, _) => 16,
        }
    }
}

fn official(benchmark: &str) -> Option<&'static str> {
    match benchmark {
        "vqav2" | "textvqa" | "gqa" | "mme" | "pope" => Some(SHORT_PHRASE),
        "vizwiz" => Some(UNANSWERABLE),
        "chartqa" => Some(SINGLE_WORD),
        "scienceqa_img" | "ai2d" => Some(LETTER),
        "coco_caption" => Some(CAPTION),
        "mmvet" | "hallusionbench" => Some(""),
        _ => None,
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|preset| preset.name() == name).ok_or_else(|| {
            Error::invalid("prompt preset", "official, msd or vispec", format!("`{name}`"), "choose one of these")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_strangers_do_not() {
        for preset in Preset::ALL {
            assert_eq!(preset.name().parse::<Preset>().unwrap(), preset);
        }
        assert!("fast".parse::<Preset>().is_err());
        assert!(Preset::Msd.suffix("gqa").unwrap_err().to_string().contains("msd"));
        assert!(Preset::Vispec.suffix("nothing").is_err());
    }

    #[test]
    fn the_published_strings() {
        let suffix = |preset: Preset, benchmark| preset.suffix(benchmark).unwrap();
        assert_eq!(suffix(Preset::Official, "chartqa"), "\nAnswer the question with a single word.");
        assert_eq!(suffix(Preset::Official, "vqav2"), "\nAnswer the question using a single word or phrase.");
        assert!(suffix(Preset::Msd, "chartqa").ends_with("explanation of your reasoning leading to the answer."));
        assert_eq!(suffix(Preset::Vispec, "chartqa").trim_start(), "Please answer with an explanation.");
        assert_eq!((Preset::Msd.max_new("chartqa"), Preset::Official.max_new("chartqa")), (512, 16));
    }
}
