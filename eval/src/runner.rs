//! Target x drafts x benchmarks x temperatures, interleaved with plain decoding.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::Tensor;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use sightdraft_core::{Message, Result, Role, progress};
use sightdraft_decode::{Acceptance, Generation, Request, Sampling, TreeChoice, TreeShape, Tuner, generate};
use sightdraft_draft::Draft;
use sightdraft_target::{PromptRows, ServedTarget};
use sightdraft_vision::Image;

use crate::metrics::{Agreement, total};
use crate::{Benchmark, Item, Report, Run, Sample, Shard, Summary, agreement};

/// Tokens of a warm-up answer: enough for every shape of pass to have been seen.
const WARM_UP_TOKENS: usize = 24;

/// A draft in the race.
pub struct Entrant {
    /// Its name in the report.
    pub name: String,
    /// Where it came from.
    pub source: String,
    /// The draft.
    pub draft: Box<dyn Draft>,
    /// Chooses trees by their cost; if there is one, the draft runs with fixed trees and with these.
    pub tuner: Option<Tuner>,
}

/// How to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Name of the target in the report.
    pub target: String,
    /// The device, in words.
    pub device: String,
    /// Temperatures.
    pub temperatures: Vec<f32>,
    /// Nucleus mass.
    pub top_p: f32,
    /// Most likely tokens kept; 0 keeps all.
    pub top_k: usize,
    /// Size of the draft trees, where they are fixed.
    pub tree: TreeShape,
    /// Acceptance rule above temperature 0.
    pub acceptance: Acceptance,
    /// Answer length, in place of each benchmark's own.
    pub max_new_tokens: Option<usize>,
    /// Prompts per benchmark, chosen by a shuffle with `seed`; all if none.
    pub limit: Option<usize>,
    /// Part of those prompts.
    pub shard: Shard,
    /// Seed of the choice of prompts, of sampling and of the bootstrap.
    pub seed: u64,
    /// Also run every draft with the image withheld from it, where there are images.
    pub blind: bool,
    /// Prompts that every run decodes before the clock starts.
    pub warm_up: usize,
    /// SHA-256 of the weights by name of target and draft.
    pub checkpoints: BTreeMap<String, String>,
}

/// One column of the comparison: no draft, a draft, one whose trees follow their cost, or one that must not see.
struct Variant<'a> {
    name: String,
    entrant: Option<&'a Entrant>,
    tree: TreeChoice,
    blind: bool,
    samples: Vec<Sample>,
}

/// Measures. Every prompt is decoded by every variant before the next prompt, in an order that rotates from prompt to prompt,
/// so that drift of the machine falls on all alike.
pub fn run(target: &ServedTarget, entrants: &[Entrant], benchmarks: &[&dyn Benchmark], plan: &Plan) -> Result<Report> {
    let (mut runs, mut warm_up_seconds) = (Vec::new(), 0.0);
    for benchmark in benchmarks {
        for &temperature in &plan.temperatures {
            let race = Race { target, benchmark: *benchmark, plan, temperature };
            let mut variants = race.variants(entrants);
            let chosen = chosen(benchmark.items().len(), plan);
            warm_up_seconds += race.warm_up(&variants, &chosen)?;
            race.run(&mut variants, &chosen)?;
            runs.extend(variants.into_iter().map(|variant| race.finish(variant)));
        }
    }
    Ok(Report {
        seed: plan.seed,
        versions: versions(),
        device: plan.device.clone(),
        tree: plan.tree,
        acceptance: plan.acceptance,
        top_p: plan.top_p,
        top_k: plan.top_k,
        warm_up: plan.warm_up,
        warm_up_seconds,
        shard: plan.shard,
        checkpoints: plan.checkpoints.clone(),
        instructions: benchmarks.iter().map(|b| (b.name().to_string(), b.instruction().to_string())).collect(),
        runs,
    })
}

fn versions() -> BTreeMap<String, String> {
    [("sightdraft".to_string(), env!("CARGO_PKG_VERSION").to_string()), ("burn".to_string(), "0.22.1".to_string())]
        .into()
}

/// Numbers of the prompts to decode: the first `limit` of a shuffle, in order, of which the shard takes its part.
fn chosen(items: usize, plan: &Plan) -> Vec<usize> {
    let mut order: Vec<usize> = (0..items).collect();
    if let Some(limit) = plan.limit.filter(|limit| *limit < items) {
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(plan.seed));
        order.truncate(limit);
        order.sort_unstable();
    }
    order.into_iter().enumerate().filter(|(i, _)| plan.shard.has(*i)).map(|(_, item)| item).collect()
}

/// Every variant on one benchmark at one temperature.
struct Race<'a> {
    target: &'a ServedTarget,
    benchmark: &'a dyn Benchmark,
    plan: &'a Plan,
    temperature: f32,
}

impl Race<'_> {
    /// Decodes the `chosen` prompts by every variant.
    fn run(&self, variants: &mut [Variant<'_>], chosen: &[usize]) -> Result<()> {
        let items = self.benchmark.items();
        let bar = progress::bar(chosen.len() as u64, "prompts");
        for (round, &item) in chosen.iter().enumerate() {
            bar.set_message(format!("{} T={}", self.benchmark.name(), self.temperature));
            self.prompt(variants, &items[item], item, round)?;
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(())
    }

    fn variants<'e>(&self, entrants: &'e [Entrant]) -> Vec<Variant<'e>> {
        let fixed = TreeChoice::Fixed(self.plan.tree);
        let variant = |name, entrant, tree, blind| Variant { name, entrant, tree, blind, samples: Vec::new() };
        let mut variants = vec![variant("plain".into(), None, fixed.clone(), false)];
        for entrant in entrants {
            variants.push(variant(entrant.name.clone(), Some(entrant), fixed.clone(), false));
            if let Some(tuner) = &entrant.tuner {
                let tree = TreeChoice::Adaptive(tuner.clone());
                variants.push(variant(format!("{} (adaptive)", entrant.name), Some(entrant), tree, false));
            }
            if self.plan.blind && self.benchmark.has_pictures() {
                variants.push(variant(format!("{} (blind)", entrant.name), Some(entrant), fixed.clone(), true));
            }
        }
        variants
    }

    /// Decodes a few prompts by every variant, so that whatever is paid once is paid before the clock starts. Returns the seconds.
    fn warm_up(&self, variants: &[Variant<'_>], chosen: &[usize]) -> Result<f64> {
        let start = Instant::now();
        for &index in chosen.iter().take(self.plan.warm_up) {
            let item = &self.benchmark.items()[index];
            let images: Vec<Image> = item.pictures.iter().map(|p| p.open()).collect::<Result<_>>()?;
            let message = Message { role: Role::User, content: item.turns[0].clone() };
            let rows = self.target.model.rows(&self.target.prompt(&[message], &images)?)?;
            for variant in variants {
                let tokens = WARM_UP_TOKENS.min(self.max_new_tokens());
                self.decode(variant, &rows, tokens, 0)?;
            }
        }
        Ok(start.elapsed().as_secs_f64())
    }

    /// All turns of one prompt by all variants. Later turns see the plain answers to the earlier ones, so that every variant
    /// reads the same prompt.
    fn prompt(&self, variants: &mut [Variant<'_>], item: &Item, index: usize, round: usize) -> Result<()> {
        let images: Vec<Image> = item.pictures.iter().map(|p| p.open()).collect::<Result<_>>()?;
        let mut messages: Vec<Message> = Vec::new();
        let mut answers: Vec<Vec<String>> = vec![Vec::new(); variants.len()];
        for (turn, words) in item.turns.iter().enumerate() {
            messages.push(Message { role: Role::User, content: words.clone() });
            let start = Instant::now();
            let rows = self.target.model.rows(&self.target.prompt(&messages, &images)?)?;
            settle(&rows.embeds);
            let embedding = start.elapsed().as_secs_f64();
            let seed = self.plan.seed.wrapping_add((index as u64) << 8 | turn as u64);
            let generations = self.turn(variants, &rows, seed, round + turn)?;
            for (answers, generation) in answers.iter_mut().zip(&generations) {
                answers.push(self.target.tokenizer.decode(&generation.token_ids)?);
            }
            let last = turn + 1 == item.turns.len();
            for (i, variant) in variants.iter_mut().enumerate() {
                let mut sample = self.sample(item, turn, &rows, &generations[0], &generations[i], embedding);
                sample.answer.clone_from(&answers[i][turn]);
                sample.score = if last { self.benchmark.score(item, &answers[i]) } else { None };
                variant.samples.push(sample);
            }
            messages.push(Message { role: Role::Assistant, content: answers[0][turn].clone() });
        }
        Ok(())
    }

    /// One generation per variant, in the order of the variants, decoded in rotated order.
    fn turn(&self, variants: &[Variant<'_>], rows: &PromptRows, seed: u64, rotate: usize) -> Result<Vec<Generation>> {
        let n = variants.len();
        let mut generations: Vec<(usize, Generation)> = (0..n)
            .map(|k| (k + rotate) % n)
            .map(|i| Ok((i, self.decode(&variants[i], rows, self.max_new_tokens(), seed)?)))
            .collect::<Result<_>>()?;
        generations.sort_by_key(|(i, _)| *i);
        Ok(generations.into_iter().map(|(_, generation)| generation).collect())
    }

    fn decode(&self, variant: &Variant<'_>, rows: &PromptRows, tokens: usize, seed: u64) -> Result<Generation> {
        let request = Request {
            prompt: rows.clone(),
            max_new_tokens: tokens,
            eos: self.target.eos.clone(),
            sampling: Sampling { temperature: self.temperature, top_p: self.plan.top_p, top_k: self.plan.top_k, seed },
            tree: variant.tree.clone(),
            acceptance: self.plan.acceptance,
            blind_draft: variant.blind,
        };
        let draft = variant.entrant.map(|entrant| entrant.draft.as_ref());
        generate(self.target.model.as_ref(), draft, &request, &mut |_| {})
    }

    fn max_new_tokens(&self) -> usize {
        self.plan.max_new_tokens.unwrap_or(self.benchmark.max_new_tokens())
    }

    /// `embedding` is the time of turning the prompt into rows (the vision tower): measured once, part of everyone's prefill.
    fn sample(
        &self,
        item: &Item,
        turn: usize,
        rows: &PromptRows,
        plain: &Generation,
        own: &Generation,
        embedding: f64,
    ) -> Sample {
        let agreement = if self.temperature > 0.0 {
            Agreement::Sampled
        } else {
            agreement::compare(self.target.model.as_ref(), rows, &plain.token_ids, &own.token_ids)
        };
        let mut seconds = own.seconds;
        seconds.prefill += embedding;
        Sample {
            id: item.id.clone(),
            turn,
            category: item.category.clone(),
            answer: String::new(),
            new_tokens: own.token_ids.len(),
            counters: own.counters.clone(),
            seconds,
            plain_tokens: plain.token_ids.len(),
            plain_seconds: total(&plain.seconds) + embedding,
            agreement,
            score: None,
        }
    }

    fn finish(&self, variant: Variant<'_>) -> Run {
        Run {
            name: variant.name,
            target: self.plan.target.clone(),
            draft: variant.entrant.map(|entrant| entrant.source.clone()),
            benchmark: self.benchmark.name().into(),
            temperature: self.temperature,
            summary: Summary::of(&variant.samples, self.plan.seed),
            samples: variant.samples,
        }
    }
}

/// Waits until the device has computed `embeds`: kernels are queued, and a clock must not stop before they end.
fn settle(embeds: &Tensor<3>) {
    let _ = embeds.clone().narrow(1, 0, 1).narrow(2, 0, 1).into_data();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(limit: Option<usize>, shard: Shard) -> Plan {
        Plan {
            target: "t".into(),
            device: "cpu".into(),
            temperatures: vec![0.0],
            top_p: 1.0,
            top_k: 0,
            tree: TreeShape { total: 8, depth: 3, top_k: 4 },
            acceptance: Acceptance::PointMass,
            max_new_tokens: None,
            limit,
            shard,
            seed: 42,
            blind: false,
            warm_up: 0,
            checkpoints: BTreeMap::new(),
        }
    }

    #[test]
    fn a_limit_takes_a_spread_of_prompts_and_shards_share_exactly_those() {
        let whole = chosen(1000, &plan(Some(20), Shard::WHOLE));
        assert_eq!(whole.len(), 20);
        assert!(whole.is_sorted() && whole[19] > 500);
        let mut shared: Vec<usize> =
            (1..=3).flat_map(|index| chosen(1000, &plan(Some(20), Shard { index, of: 3 }))).collect();
        shared.sort_unstable();
        assert_eq!(shared, whole);
        assert_eq!(chosen(3, &plan(Some(20), Shard::WHOLE)), [0, 1, 2]);
    }
}
