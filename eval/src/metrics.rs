//! What is measured on one prompt, and how prompts are pooled.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sightdraft_decode::{Counters, Seconds};

use crate::bootstrap;

/// How an answer compares with the plain answer to the same prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Agreement {
    /// Token for token the same.
    Same,
    /// They part at `position`, where the target's logits of the two tokens are within 1e-5 of each other: either is greedy.
    Tie {
        /// Index of the first differing token.
        position: usize,
    },
    /// They part at `position`: not lossless.
    Different {
        /// Index of the first differing token.
        position: usize,
    },
    /// Sampled answers differ by chance; equality of tokens says nothing.
    Sampled,
}

/// One turn of one prompt in one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The prompt; turns of one prompt share it.
    pub id: String,
    /// Turn, from 0.
    pub turn: usize,
    /// Kind of question, where the benchmark has kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// What was answered, for those who judge it by other rules.
    #[serde(default)]
    pub answer: String,
    /// Ids emitted, the first (from the prefill) included.
    pub new_tokens: usize,
    /// Counts of the verification passes.
    pub counters: Counters,
    /// Wall-clock split.
    pub seconds: Seconds,
    /// Ids that plain decoding emitted on this prompt.
    pub plain_tokens: usize,
    /// Seconds that plain decoding took on this prompt.
    pub plain_seconds: f64,
    /// Against the plain answer.
    pub agreement: Agreement,
    /// Task score of the answer, 0 to 1, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
}

/// Token-identical answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lossless {
    /// Answers equal to the plain one.
    pub same: usize,
    /// Answers compared: all at temperature 0, none above it.
    pub of: usize,
    /// Answers that part from the plain one at a tie of the target's logits (within 1e-5); not counted in `same`.
    pub ties: usize,
}

impl Lossless {
    /// Answers that differ from the plain one for no excuse: a fault, of the program or of its hardware.
    pub fn broken(&self) -> usize {
        self.of.saturating_sub(self.same + self.ties)
    }
}

/// Acceptance by position in the draft.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ByPosition {
    /// P(draft i+1 accepted | the first i were, and the tree went on).
    pub conditional: Vec<f64>,
    /// P(at least i+1 drafts accepted) over all passes.
    pub joint: Vec<f64>,
}

/// Many samples as numbers. "Global" pools counts before dividing; "mean" averages per-sample ratios.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Distinct prompts.
    pub prompts: usize,
    /// Ids emitted.
    pub new_tokens: usize,
    /// Verification passes of the target.
    pub target_passes: usize,
    /// Drafts accepted per pass, global.
    pub accepted_per_pass: f64,
    /// Tokens emitted per pass, global.
    pub emitted_per_pass: f64,
    /// Mean over samples of drafts accepted per pass.
    pub accepted_per_pass_mean: f64,
    /// Mean over samples of tokens emitted per pass.
    pub emitted_per_pass_mean: f64,
    /// 95% bootstrap interval of `emitted_per_pass` over prompts.
    pub emitted_per_pass_interval: Option<[f64; 2]>,
    /// Plain seconds per token over speculative seconds per token, of the sums. Where both emit the same tokens this is plain
    /// seconds / speculative seconds.
    pub speedup: f64,
    /// Mean of the per-sample ratios.
    pub speedup_mean: f64,
    /// 95% bootstrap interval of `speedup` over prompts.
    pub speedup_interval: Option<[f64; 2]>,
    /// Ids per second, prefill included.
    pub tokens_per_second: f64,
    /// Seconds, summed.
    pub seconds: Seconds,
    /// Token-identical answers.
    pub lossless: Lossless,
    /// Acceptance by position.
    pub acceptance_by_position: ByPosition,
    /// Share of passes whose greedy draft path was pruned from the draft's own tree.
    pub greedy_path_pruned: f64,
    /// Share of passes whose accepted path was (a prefix of) the draft's greedy path.
    pub accepted_path_is_greedy: f64,
    /// Mean task score.
    pub score: Option<f64>,
    /// Mean task score by kind of question, where there are kinds (ChartQA: human and augmented).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub score_by_category: BTreeMap<String, f64>,
}

/// a / b, and 0 where nothing was counted (JSON has no NaN).
fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// All of a generation's seconds.
pub fn total(seconds: &Seconds) -> f64 {
    seconds.prefill + seconds.draft + seconds.verify + seconds.other
}

/// Sums that a resample adds up quickly.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    tokens: f64,
    seconds: f64,
    plain_tokens: f64,
    plain_seconds: f64,
    emitted: f64,
    passes: f64,
}

impl Sums {
    fn add(mut self, other: &Self) -> Self {
        self.tokens += other.tokens;
        self.seconds += other.seconds;
        self.plain_tokens += other.plain_tokens;
        self.plain_seconds += other.plain_seconds;
        self.emitted += other.emitted;
        self.passes += other.passes;
        self
    }

    fn of(sample: &Sample) -> Self {
        Self {
            tokens: sample.new_tokens as f64,
            seconds: total(&sample.seconds),
            plain_tokens: sample.plain_tokens as f64,
            plain_seconds: sample.plain_seconds,
            emitted: sample.counters.emitted as f64,
            passes: sample.counters.target_passes as f64,
        }
    }

    fn speedup(&self) -> f64 {
        ratio(self.plain_seconds * self.tokens, self.plain_tokens * self.seconds)
    }

    fn emitted_per_pass(&self) -> f64 {
        ratio(self.emitted, self.passes)
    }
}

fn pooled(units: &[&Sums]) -> Sums {
    units.iter().fold(Sums::default(), |sum, unit| sum.add(unit))
}

/// One unit per prompt, its turns added up, in order of first appearance.
fn by_prompt(samples: &[Sample]) -> Vec<Sums> {
    let mut order: Vec<&str> = Vec::new();
    let mut units: Vec<Sums> = Vec::new();
    for sample in samples {
        match order.iter().position(|id| *id == sample.id) {
            Some(i) => units[i] = units[i].add(&Sums::of(sample)),
            None => {
                order.push(&sample.id);
                units.push(Sums::of(sample));
            }
        }
    }
    units
}

/// Field-by-field sum of counters.
pub fn pool_counters<'a>(all: impl IntoIterator<Item = &'a Counters>) -> Counters {
    let mut sum = Counters::default();
    for counters in all {
        sum.target_passes += counters.target_passes;
        sum.accepted += counters.accepted;
        sum.emitted += counters.emitted;
        sum.greedy_path_pruned += counters.greedy_path_pruned;
        sum.accepted_greedy_path += counters.accepted_greedy_path;
        add_each(&mut sum.reached, &counters.reached);
        add_each(&mut sum.accepted_at, &counters.accepted_at);
    }
    sum
}

fn add_each(sum: &mut Vec<usize>, more: &[usize]) {
    if sum.len() < more.len() {
        sum.resize(more.len(), 0);
    }
    for (a, b) in sum.iter_mut().zip(more) {
        *a += b;
    }
}

fn pool_seconds(samples: &[Sample]) -> Seconds {
    let sum = |part: fn(&Seconds) -> f64| samples.iter().map(|s| part(&s.seconds)).sum();
    Seconds { prefill: sum(|s| s.prefill), draft: sum(|s| s.draft), verify: sum(|s| s.verify), other: sum(|s| s.other) }
}

fn by_position(counters: &Counters) -> ByPosition {
    let at = |i: usize| counters.accepted_at[i] as f64;
    let positions = 0..counters.accepted_at.len();
    ByPosition {
        conditional: positions.clone().map(|i| ratio(at(i), *counters.reached.get(i).unwrap_or(&0) as f64)).collect(),
        joint: positions.map(|i| ratio(at(i), counters.target_passes as f64)).collect(),
    }
}

fn lossless(samples: &[Sample]) -> Lossless {
    let count = |of: fn(&Agreement) -> bool| samples.iter().filter(|s| of(&s.agreement)).count();
    Lossless {
        same: count(|a| matches!(a, Agreement::Same)),
        of: count(|a| !matches!(a, Agreement::Sampled)),
        ties: count(|a| matches!(a, Agreement::Tie { .. })),
    }
}

fn mean(values: &[f64]) -> f64 {
    ratio(values.iter().sum(), values.len() as f64)
}

fn scores_by_category(samples: &[Sample]) -> BTreeMap<String, Vec<f64>> {
    let mut scores: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for sample in samples {
        if let (Some(category), Some(score)) = (&sample.category, sample.score) {
            scores.entry(category.clone()).or_default().push(score);
        }
    }
    scores
}

impl Summary {
    /// Pools `samples`; `seed` is the bootstrap's.
    pub fn of(samples: &[Sample], seed: u64) -> Self {
        let counters = pool_counters(samples.iter().map(|s| &s.counters));
        let units = by_prompt(samples);
        let all = pooled(&units.iter().collect::<Vec<_>>());
        let passes = counters.target_passes as f64;
        // A one-token answer needs no pass: it says nothing about passes and is left out of their means.
        let with_passes: Vec<&Sample> = samples.iter().filter(|s| s.counters.target_passes > 0).collect();
        let per_pass = |part: fn(&Counters) -> usize| {
            let sum: f64 = with_passes.iter().map(|s| part(&s.counters) as f64 / s.counters.target_passes as f64).sum();
            ratio(sum, with_passes.len() as f64)
        };
        let scores: Vec<f64> = samples.iter().filter_map(|s| s.score).collect();
        Self {
            prompts: units.len(),
            new_tokens: samples.iter().map(|s| s.new_tokens).sum(),
            target_passes: counters.target_passes,
            accepted_per_pass: ratio(counters.accepted as f64, passes),
            emitted_per_pass: all.emitted_per_pass(),
            accepted_per_pass_mean: per_pass(|c| c.accepted),
            emitted_per_pass_mean: per_pass(|c| c.emitted),
            emitted_per_pass_interval: bootstrap::interval(&units, seed, |draw| pooled(draw).emitted_per_pass()),
            speedup: all.speedup(),
            speedup_mean: ratio(samples.iter().map(|s| Sums::of(s).speedup()).sum(), samples.len() as f64),
            speedup_interval: bootstrap::interval(&units, seed, |draw| pooled(draw).speedup()),
            tokens_per_second: ratio(all.tokens, all.seconds),
            seconds: pool_seconds(samples),
            lossless: lossless(samples),
            acceptance_by_position: by_position(&counters),
            greedy_path_pruned: ratio(counters.greedy_path_pruned as f64, passes),
            accepted_path_is_greedy: ratio(counters.accepted_greedy_path as f64, passes),
            score: (!scores.is_empty()).then(|| mean(&scores)),
            score_by_category: scores_by_category(samples).into_iter().map(|(kind, s)| (kind, mean(&s))).collect(),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A sample of `accepted` drafts in `passes` passes that took `seconds` against `plain` seconds.
    pub(crate) fn sample(id: &str, accepted: usize, passes: usize, seconds: f64, plain: f64) -> Sample {
        let tokens = accepted + passes + 1;
        Sample {
            id: id.into(),
            turn: 0,
            category: None,
            answer: "Yes.".into(),
            new_tokens: tokens,
            counters: Counters { target_passes: passes, accepted, emitted: accepted + passes, ..Default::default() },
            seconds: Seconds { verify: seconds, ..Default::default() },
            plain_tokens: tokens,
            plain_seconds: plain,
            agreement: Agreement::Same,
            score: None,
        }
    }

    #[test]
    fn steps_that_accept_0_1_2_report_both_definitions() {
        let summary = Summary::of(&[sample("a", 3, 3, 1.0, 1.0)], 0);
        assert_eq!(summary.accepted_per_pass, 1.0);
        assert_eq!(summary.emitted_per_pass, 2.0);
    }

    #[test]
    fn global_and_mean_differ_where_lengths_do() {
        let summary = Summary::of(&[sample("a", 9, 3, 1.0, 4.0), sample("b", 0, 1, 1.0, 1.0)], 0);
        assert_eq!(summary.accepted_per_pass, 9.0 / 4.0);
        assert_eq!(summary.accepted_per_pass_mean, 1.5);
        assert_eq!(summary.emitted_per_pass, 13.0 / 4.0);
        assert_eq!(summary.speedup, 2.5);
        assert_eq!(summary.speedup_mean, 2.5);
        let unequal = Summary::of(&[sample("a", 9, 3, 3.0, 9.0), sample("b", 0, 1, 1.0, 1.0)], 0);
        assert_eq!(unequal.speedup, 2.5);
        assert_eq!(unequal.speedup_mean, 2.0);
    }

    #[test]
    fn speedup_counts_seconds_per_token_where_lengths_differ() {
        let mut one = sample("a", 4, 5, 1.0, 4.0);
        one.plain_tokens = 2 * one.new_tokens;
        assert_eq!(Summary::of(&[one], 0).speedup, 2.0);
    }

    #[test]
    fn positions_are_conditional_and_joint() {
        let mut one = sample("a", 6, 10, 1.0, 1.0);
        one.counters.reached = vec![10, 4, 1];
        one.counters.accepted_at = vec![5, 1, 0];
        let by = Summary::of(&[one], 0).acceptance_by_position;
        assert_eq!(by.conditional, [0.5, 0.25, 0.0]);
        assert_eq!(by.joint, [0.5, 0.1, 0.0]);
    }

    #[test]
    fn turns_of_one_prompt_are_one_unit() {
        let mut second = sample("a", 1, 1, 1.0, 1.0);
        second.turn = 1;
        let summary = Summary::of(&[sample("a", 3, 3, 1.0, 1.0), second], 0);
        assert_eq!(summary.prompts, 1);
        assert_eq!(summary.speedup_interval, None);
    }

    #[test]
    fn ties_are_told_apart_and_sampled_answers_are_not_compared() {
        let with = |agreement| Sample { agreement, ..sample("a", 1, 1, 1.0, 1.0) };
        let summary = Summary::of(
            &[
                with(Agreement::Same),
                with(Agreement::Tie { position: 3 }),
                with(Agreement::Different { position: 1 }),
                with(Agreement::Sampled),
            ],
            0,
        );
        assert_eq!(summary.lossless, Lossless { same: 1, of: 3, ties: 1 });
        assert_eq!(summary.lossless.broken(), 1);
    }

    #[test]
    fn scores_are_told_apart_by_kind_of_question() {
        let with = |category: &str, score| Sample {
            category: Some(category.into()),
            score: Some(score),
            ..sample("a", 1, 1, 1.0, 1.0)
        };
        let summary = Summary::of(&[with("human", 1.0), with("human", 0.0), with("augmented", 1.0)], 0);
        assert_eq!(summary.score, Some(2.0 / 3.0));
        assert_eq!(summary.score_by_category, [("augmented".to_string(), 1.0), ("human".to_string(), 0.5)].into());
    }

    #[test]
    fn nothing_measured_is_zero_and_never_nan() {
        let empty = Summary::of(&[], 0);
        assert_eq!(empty.speedup, 0.0);
        assert_eq!(empty.tokens_per_second, 0.0);
        let one_token = Summary::of(&[sample("a", 0, 0, 0.0, 0.0)], 0);
        assert_eq!(one_token.emitted_per_pass_mean, 0.0);
    }
}
