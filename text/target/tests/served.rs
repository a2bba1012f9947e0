//! A complete LLaVA directory, from messages and images to rows: the built-in target is one.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use sightdraft_core::{Message, Role};
use sightdraft_target::load::load_llava;
use sightdraft_target::{Mask, ServedTarget};
use sightdraft_vision::{Image, Pixels};

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/sightdraft/assets/builtin")
}

/// A picture of another size and shape than the tower takes.
fn picture(shade: usize) -> Image {
    let rgb = (0..3 * 200 * 90).map(|i| ((i * shade) % 251) as u8).collect();
    Image::from_rgb(200, 90, rgb).expect("a picture")
}

#[test]
fn messages_and_images_become_rows() {
    let device = Device::flex();
    let target = ServedTarget::open(&dir(), DType::F32, &device).expect("the built-in target opens");
    assert_eq!(target.eos, [2]);
    let says = |content: &str| Message { role: Role::User, content: content.into() };
    let images = [picture(7), picture(11)];
    let messages = [says("<image>\nWhat is the title?"), says("And of <image>?")];
    let prompt = target.prompt(&messages, &images).expect("a prompt");
    let (begin, image) =
        (target.tokenizer.id("<s>").expect("BOS"), target.tokenizer.id("<image>").expect("image token"));
    let count = |ids: &[u32], token: u32| ids.iter().filter(|id| **id == token).count();
    assert_eq!((prompt.ids[0], count(&prompt.ids, begin), count(&prompt.ids, image)), (begin, 1, 2));
    assert_eq!(prompt.ids, target.prompt_ids(&messages, 2).expect("ids alone"));
    assert!(prompt.images.iter().all(|pixels| pixels.size == 140 && pixels.values.len() == 3 * 140 * 140));

    let rows = target.model.rows(&prompt).expect("rows");
    assert_eq!(target.model.expand(&prompt.ids, 2).expect("expands"), (rows.ids.clone(), rows.image_rows.clone()));
    assert_eq!(rows.image_rows.iter().map(|block| block.len()).collect::<Vec<_>>(), [25, 25]);
    assert_eq!((rows.ids.len(), count(&rows.ids, image)), (prompt.ids.len() + 48, 50));
    assert_eq!(rows.embeds.dims(), [1, rows.ids.len(), 96]);

    // The rows of the blocks are the tower's and the projector's, image by image.
    let model = load_llava(&dir(), &device).expect("the model alone");
    for (block, pixels) in rows.image_rows.iter().zip(&prompt.images) {
        let features = model.vision.forward(std::slice::from_ref::<Pixels>(pixels));
        let found = rows.embeds.clone().narrow(1, block.start, block.len());
        let difference: f32 = (found - features).abs().max().into_scalar();
        assert!(difference < 1e-5, "{difference}");
    }
    let llama = target.model.llama();
    let positions = [(0..rows.ids.len()).collect()];
    let pass = llama.forward(rows.embeds, &positions, &Mask::Causal, &mut llama.new_cache(), &[]);
    let sum: f32 = pass.hidden.sum().into_scalar();
    assert!(sum.is_finite());
}

#[test]
fn what_does_not_fit_the_messages_is_refused() {
    let target = ServedTarget::open(&dir(), DType::F32, &Device::flex()).expect("the built-in target opens");
    let asks = [Message { role: Role::User, content: "<image>\nWhat is it?".into() }];
    let refusal = |images: &[Image]| target.prompt(&asks, images).expect_err("refused").to_string();
    assert!(refusal(&[]).contains("expected 0 times <image>"));
    assert!(refusal(&[picture(3), picture(5)]).contains("expected 2 times <image>"));
}
