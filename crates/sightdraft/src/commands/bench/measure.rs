//! The clock of `sightdraft bench`. Everything takes turns, and the fastest of several turns counts: what disturbs a run only
//! ever adds to it.

use std::collections::BTreeMap;
use std::time::Instant;

use burn::tensor::Tensor;
use sightdraft_core::{Result, progress};
use sightdraft_decode::costs::{CONTEXT, DraftSteps, TARGET_ROWS, TargetPasses};
use sightdraft_decode::{Acceptance, Request, Sampling, TreeShape, generate};
use sightdraft_draft::Draft;
use sightdraft_kernels::ReadBandwidth;
use sightdraft_target::{Llama, Projection, PromptRows, Target};

/// Tokens of a plain answer.
const TOKENS: usize = 24;

/// Reading so much tells the speed of memory, however large the model.
const LARGEST_READ: usize = 1 << 30;

/// What was measured: of each thing the least seconds; of plain decoding and the memory, which are compared, the median turns.
pub struct Found {
    /// Bytes of weights that a pass reads.
    pub weight_bytes: usize,
    /// A whole pass, by rows.
    pub pass: BTreeMap<usize, f64>,
    /// All layers of a name, by rows.
    pub layers: BTreeMap<&'static str, BTreeMap<usize, f64>>,
    /// A draft's step of one row.
    pub draft_step: Option<f64>,
    /// Tokens a second of plain decoding.
    pub plain: f64,
    /// Bytes a second of reading as many weights, and the share of that speed at which plain decoding reads them; on the CPU.
    pub memory: Option<(f64, f64)>,
}

impl Found {
    /// All linear layers of a pass of one row.
    pub fn products(&self) -> f64 {
        self.layers.values().filter_map(|seconds| seconds.get(&1)).sum()
    }
}

/// Measures everything `turns` times, after a turn that only warms up.
pub fn measure(target: &dyn Target, draft: Option<&dyn Draft>, turns: usize) -> Result<Found> {
    let llama = target.llama();
    let projections = llama.projections();
    let weight_bytes: usize = projections.iter().map(|(_, projection)| projection.bytes()).sum();
    let on_cpu = projections.iter().all(|(_, projection)| projection.is_packed());
    let memory = on_cpu.then(|| ReadBandwidth::new(LARGEST_READ.min(weight_bytes)));
    let mut passes = TargetPasses::new(llama);
    let mut steps = draft.map(|draft| DraftSteps::new(llama, draft));
    let request = plain_request(llama);
    let (mut pass, mut by_name, mut draft_step) = (BTreeMap::new(), BTreeMap::new(), None);
    let (mut speeds, mut reads, mut shares) = (vec![], vec![], vec![]);
    let bar = progress::bar(turns as u64 + 1, "turns");
    for turn in 0..=turns {
        let plain = generate(target, None, &request, &mut |_| ())?;
        let seconds = plain.seconds.verify + plain.seconds.other;
        let speed = plain.counters.emitted as f64 / seconds;
        // For as long as the answer took, so that what disturbs one disturbs the other.
        let read = memory.as_ref().map(|memory| read_for(memory, seconds));
        // Untimed: it finds the caches as the memory's clock left them, the next ones as a pass leaves them.
        passes.seconds(1);
        let passes: Vec<(usize, f64)> = passes.rows().into_iter().map(|rows| (rows, passes.seconds(rows))).collect();
        let step = steps.as_mut().map(|steps| steps.seconds(1));
        let layers = layers(&projections);
        bar.inc(1);
        if turn == 0 {
            continue;
        }
        passes.into_iter().for_each(|(rows, seconds)| keep_least(&mut pass, rows, seconds));
        for (name, rows, seconds) in layers {
            keep_least(by_name.entry(name).or_default(), rows, seconds);
        }
        draft_step = step.map(|step| draft_step.map_or(step, |best: f64| best.min(step)));
        speeds.push(speed);
        reads.extend(read);
        shares.extend(read.map(|read| speed * weight_bytes as f64 / read));
    }
    bar.finish_and_clear();
    let memory = (!reads.is_empty()).then(|| (median(reads), median(shares)));
    Ok(Found { weight_bytes, pass, layers: by_name, draft_step, plain: median(speeds), memory })
}

/// Bytes a second of reading over and over for `seconds`.
fn read_for(memory: &ReadBandwidth, seconds: f64) -> f64 {
    let (mut taken, mut bytes) = (0.0, 0);
    while taken < seconds {
        taken += memory.read();
        bytes += memory.bytes();
    }
    bytes as f64 / taken
}

/// The middle one, the upper of two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn keep_least(least: &mut BTreeMap<usize, f64>, rows: usize, seconds: f64) {
    least.entry(rows).and_modify(|best| *best = best.min(seconds)).or_insert(seconds);
}

/// All layers of each name by rows. Between two figures of a name come all the other layers, so that weights are read from where
/// a pass finds them.
fn layers(projections: &[(&'static str, &Projection)]) -> Vec<(&'static str, usize, f64)> {
    let mut names: Vec<&'static str> = projections.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let of_rows = |rows| names.iter().map(move |&name| (name, rows, products(projections, rows, name)));
    TARGET_ROWS.into_iter().flat_map(of_rows).collect()
}

/// Seconds of the products of `rows` rows with all layers of a name.
fn products(projections: &[(&'static str, &Projection)], rows: usize, name: &str) -> f64 {
    let wanted = projections.iter().filter(|(other, _)| *other == name);
    let prepared: Vec<(&Projection, Tensor<2>)> = wanted.map(|(_, p)| (*p, p.sample_input(rows))).collect();
    let clock = Instant::now();
    let mut last = None;
    for (projection, x) in prepared {
        last = Some(projection.forward(x));
    }
    // Devices queue their work: a number that is read has been computed.
    last.map(|y| y.slice([0..1, 0..1]).into_data());
    clock.elapsed().as_secs_f64()
}

/// Behind a cache as long as that of [`TargetPasses`].
fn plain_request(llama: &Llama) -> Request {
    let n = CONTEXT.min(llama.config.max_position_embeddings / 2).max(1);
    let ids: Vec<u32> = (0..n).map(|i| (i * 7919 % llama.config.vocab_size) as u32).collect();
    Request {
        prompt: PromptRows { embeds: llama.embed_ids(&ids), ids, image_rows: Vec::new() },
        max_new_tokens: TOKENS + 1,
        eos: Vec::new(),
        sampling: Sampling::GREEDY,
        tree: TreeShape::chain(0).into(),
        acceptance: Acceptance::PointMass,
        blind_draft: false,
    }
}
