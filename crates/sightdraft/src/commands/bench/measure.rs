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

/// What was measured: the least seconds of each thing.
pub struct Found {
    /// Bytes of weights that a pass reads.
    pub weight_bytes: usize,
    /// A whole pass, by rows.
    pub pass: BTreeMap<usize, f64>,
    /// All layers of a name, by rows.
    pub layers: BTreeMap<&'static str, BTreeMap<usize, f64>>,
    /// All linear layers of a pass of one row.
    pub products: f64,
    /// A draft's step of one row.
    pub draft_step: Option<f64>,
    /// Plain decoding.
    pub tokens_per_second: f64,
    /// Memory, on the CPU.
    pub read_bytes_per_second: Option<f64>,
}

/// Measures everything `turns` times, after a turn that only warms up.
pub fn measure(target: &dyn Target, draft: Option<&dyn Draft>, turns: usize) -> Result<Found> {
    let llama = target.llama();
    let projections = llama.projections();
    let weight_bytes = projections.iter().map(|(_, projection)| projection.bytes()).sum();
    let on_cpu = projections.iter().all(|(_, projection)| projection.is_packed());
    let memory = on_cpu.then(|| ReadBandwidth::new(LARGEST_READ.min(weight_bytes)));
    let mut passes = TargetPasses::new(llama);
    let mut steps = draft.map(|draft| DraftSteps::new(llama, draft));
    let request = plain_request(llama);
    let mut found = Found {
        weight_bytes,
        pass: BTreeMap::new(),
        layers: BTreeMap::new(),
        products: f64::INFINITY,
        draft_step: None,
        tokens_per_second: 0.0,
        read_bytes_per_second: None,
    };
    let bar = progress::bar(turns as u64 + 1, "turns");
    for turn in 0..=turns {
        let plain = generate(target, None, &request, &mut |_| ())?;
        let pass: Vec<(usize, f64)> = passes.rows().into_iter().map(|rows| (rows, passes.seconds(rows))).collect();
        let step = steps.as_mut().map(|steps| steps.seconds(1));
        let products = products(&projections, 1, |_| true);
        let layers = layers(&projections);
        let read = memory.as_ref().map(|memory| memory.bytes() as f64 / memory.read());
        bar.inc(1);
        if turn == 0 {
            continue;
        }
        pass.into_iter().for_each(|(rows, seconds)| keep_least(&mut found.pass, rows, seconds));
        for (name, rows, seconds) in layers {
            keep_least(found.layers.entry(name).or_default(), rows, seconds);
        }
        found.products = found.products.min(products);
        found.draft_step = step.map(|step| found.draft_step.map_or(step, |best| best.min(step)));
        let seconds = plain.seconds.verify + plain.seconds.other;
        found.tokens_per_second = found.tokens_per_second.max(plain.counters.emitted as f64 / seconds);
        found.read_bytes_per_second = read.map(|read| found.read_bytes_per_second.map_or(read, |best| best.max(read)));
    }
    bar.finish_and_clear();
    Ok(found)
}

fn keep_least(least: &mut BTreeMap<usize, f64>, rows: usize, seconds: f64) {
    least.entry(rows).and_modify(|best| *best = best.min(seconds)).or_insert(seconds);
}

/// All layers of each name by rows: one after another, as in a pass, so that their weights come from where a pass finds them.
fn layers(projections: &[(&'static str, &Projection)]) -> Vec<(&'static str, usize, f64)> {
    let mut names: Vec<&'static str> = projections.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    let by_rows = |name| TARGET_ROWS.map(|rows| (name, rows, products(projections, rows, |other| other == name)));
    names.into_iter().flat_map(by_rows).collect()
}

/// Seconds of the products of `rows` rows with all `wanted` layers.
fn products(projections: &[(&'static str, &Projection)], rows: usize, wanted: impl Fn(&str) -> bool) -> f64 {
    let wanted = projections.iter().filter(|(name, _)| wanted(name));
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
