//! The training unroll against decoding: step j of the path begun at a row is what the draft says when it really follows the
//! target to that row and then guesses on along the sequence.

use burn::prelude::*;
use burn::tensor::Distribution;
use sightdraft_draft::{Draft, DraftConfig, DraftModel, FeatureRows, Method, VocabMap};
use sightdraft_target::{Llama, LlamaConfig, Mask, RopeConfig};

const WIDTH: usize = 16;
const ROWS: usize = 7;
const STEPS: usize = 4;

fn target() -> Llama {
    let config = LlamaConfig {
        hidden_size: WIDTH,
        intermediate_size: 24,
        num_hidden_layers: 4,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 4,
        vocab_size: 12,
        max_position_embeddings: 64,
        rms_norm_eps: 1e-5,
        rope: RopeConfig { theta: 10_000.0, scaling: None },
        tie_word_embeddings: true,
    };
    Llama::init(&config, &Device::flex())
}

fn draft(method: Method) -> DraftModel {
    let (target, device) = (target(), Device::flex());
    let config = DraftConfig::for_target(method, &target.config, 12).unwrap();
    DraftModel::init(config, VocabMap::identity(12), &target, &device)
}

/// Two sequences: features, and embeddings of the tokens after them (more than rows, for shifted steps).
fn sequences(draft: &DraftModel) -> (Tensor<3>, Tensor<3>) {
    let random = |rows, width| Tensor::random([2, rows, width], Distribution::Normal(0.0, 1.0), &Device::flex());
    (random(ROWS, draft.taps().len() * WIDTH), random(ROWS + STEPS, WIDTH))
}

/// `predict` of every step of the path begun at `anchor`, by decoding, `[2, steps, H]`.
fn decoded(draft: &DraftModel, features: &Tensor<3>, embeds: &Tensor<3>, anchor: usize) -> Tensor<3> {
    let mut state = draft.start();
    let rows = FeatureRows {
        features: features.clone().narrow(1, 0, anchor + 1),
        embeds: embeds.clone().narrow(1, 0, anchor + 1),
        positions: &[(0..=anchor).collect()],
        mask: &Mask::Causal,
        image: &vec![vec![None; anchor + 1]; 2],
    };
    let first = draft.extend(&mut state, rows);
    let mut hidden = first.hidden.narrow(1, anchor, 1);
    let mut said = vec![first.predict.narrow(1, anchor, 1)];
    for place in anchor + 1..anchor + STEPS {
        let pass = draft.step(&mut state, hidden, embeds.clone().narrow(1, place, 1), &[vec![place]], &Mask::Causal);
        hidden = pass.hidden;
        said.push(pass.predict);
    }
    Tensor::cat(said, 1)
}

#[test]
fn a_path_of_the_unroll_is_what_decoding_along_it_gives() {
    for method in [Method::Eagle1, Method::Hass, Method::Griffin, Method::Eagle3] {
        Device::flex().seed(7);
        let draft = draft(method);
        let (features, embeds) = sequences(&draft);
        let form = draft.unroll_rows();
        let shifted = |step: usize| embeds.clone().narrow(1, form.shift(step), ROWS);
        let rows = FeatureRows {
            features: features.clone(),
            embeds: shifted(0),
            positions: &[(0..ROWS).collect()],
            mask: &Mask::Causal,
            image: &vec![vec![None; ROWS]; 2],
        };
        for from in [0, 3, ROWS - 1] {
            let later: Vec<Tensor<3>> = (1..STEPS).map(|step| shifted(step).narrow(1, from, ROWS - from)).collect();
            let passes = draft.unroll(rows.clone(), from, &later);
            assert_eq!(passes.len(), STEPS);
            for anchor in from..ROWS {
                let want = decoded(&draft, &features, &embeds, anchor);
                for (step, pass) in passes.iter().enumerate().filter(|(step, _)| form.row(anchor, *step) < ROWS) {
                    let found = pass.predict.clone().narrow(1, form.row(anchor, step) - from, 1);
                    let diff: f32 = (found - want.clone().narrow(1, step, 1)).abs().max().into_scalar();
                    assert!(diff < 1e-5, "{method}, row {anchor} from {from}, step {step}: {diff}");
                }
            }
        }
    }
}

#[test]
fn a_single_row_unrolls() {
    for method in [Method::Hass, Method::Griffin, Method::Eagle3] {
        let draft = draft(method);
        let (features, embeds) = sequences(&draft);
        let one = |x: &Tensor<3>| x.clone().narrow(1, 0, 1);
        let rows = FeatureRows {
            features: one(&features),
            embeds: one(&embeds),
            positions: &[vec![0]],
            mask: &Mask::Causal,
            image: &vec![vec![None]; 2],
        };
        let passes = draft.unroll(rows, 0, &[one(&embeds), one(&embeds)]);
        assert_eq!(passes.len(), 3);
        assert!(passes.iter().all(|pass| pass.predict.clone().is_finite().all().into_scalar::<bool>()), "{method}");
    }
}
