//! Every read waits for a GPU to be through with its queue, so a pass makes one and a level of guesses makes one. They are counted
//! where wgpu itself reports them: a buffer is mapped for each tensor that goes to the host.

use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use log::{LevelFilter, Log, Metadata, Record};
use sightdraft_decode::{TreeShape, generate};
use sightdraft_draft::Draft;
use sightdraft_target::Llama;

use super::device;
use crate::tiny::{prompt, random_draft, request, target};

/// Counts wgpu's reports.
struct Reads;

static MAPPED: AtomicUsize = AtomicUsize::new(0);

impl Log for Reads {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("wgpu_core")
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) && record.args().to_string().starts_with("Buffer::map_async") {
            MAPPED.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn flush(&self) {}
}

/// Tokens of an answer.
const TOKENS: usize = 9;

/// Tensors read for an answer, and how many tokens were still to come before each pass behind the prompt's.
fn reads(target: &Llama, draft: Option<&dyn Draft>, tree: TreeShape) -> (usize, Vec<usize>) {
    let mut request = request(prompt(target, 1, true), TOKENS);
    request.tree = tree.into();
    let mut left = vec![TOKENS];
    let before = MAPPED.load(Ordering::SeqCst);
    generate(target, draft, &request, &mut |ids| left.push(left[left.len() - 1] - ids.len())).unwrap();
    assert_eq!(left.pop(), Some(0));
    (MAPPED.load(Ordering::SeqCst) - before, left.split_off(1))
}

#[test]
fn a_pass_and_a_level_of_guesses_are_read_once() {
    let Some((device, _turn)) = device() else { return };
    log::set_logger(&Reads).unwrap();
    log::set_max_level(LevelFilter::Trace);
    let target = target().to_device(&device);
    let (mapped, left) = reads(&target, None, TreeShape::chain(0));
    // The prompt's pass and one for each further token.
    assert_eq!((mapped, left.len()), (TOKENS, TOKENS - 1));
    let draft = random_draft(&target);
    for depth in 1..=3 {
        let (mapped, left) = reads(&target, Some(&draft), TreeShape { total: 6, depth, top_k: 2 });
        // Below the root `depth` more levels, as far as tokens are left for them; of each the guesses and their log-probabilities.
        let levels: usize = left.iter().map(|left| (depth + 1).min(left - 1)).sum();
        assert_eq!(mapped, 1 + left.len() + 2 * levels, "depth {depth}, {left:?}");
    }
}
