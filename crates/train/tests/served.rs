//! From conversations with images to training examples, on the built-in target.

use std::path::{Path, PathBuf};

use burn::tensor::{DType, Device};
use sightdraft_core::{Message, Role};
use sightdraft_datasets::charts::{Chart, Split};
use sightdraft_datasets::{Conversation, ImageSource, training};
use sightdraft_target::ServedTarget;
use sightdraft_train::features::Sequence;
use sightdraft_train::regenerate::Regenerated;
use sightdraft_train::{Example, RegenerateConfig, regenerate};

fn target() -> ServedTarget {
    let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sightdraft/assets/builtin");
    ServedTarget::open(&dir, DType::F32, &Device::flex()).expect("the built-in target opens")
}

fn says(role: Role, content: &str) -> Message {
    Message { role, content: content.into() }
}

/// A question about a drawn chart, saved as a file where training lines can name it.
fn about_chart(dir: &Path, number: u64) -> Conversation {
    let chart = Chart::new(3, Split::Train, number);
    let path = dir.join(format!("{number}.png"));
    chart.image.save(&path).expect("saved");
    Conversation {
        id: number.to_string(),
        messages: vec![says(Role::User, &format!("<image>\n{}", chart.question)), says(Role::Assistant, "old")],
        images: vec![ImageSource::File(path)],
        ..Conversation::default()
    }
}

#[test]
fn answers_are_the_targets_own_and_train_from_their_first_token() {
    let (target, dir) = (target(), tempfile::tempdir().unwrap());
    let mut conversations: Vec<Conversation> = (0..3).map(|number| about_chart(dir.path(), number)).collect();
    conversations.push(Conversation {
        id: "long".into(),
        messages: vec![says(Role::User, &"What is the title? ".repeat(200))],
        ..Conversation::default()
    });
    let out = dir.path().join("answers.jsonl");
    let config = RegenerateConfig { max_new_tokens: 24, batch: 2, ..RegenerateConfig::default() };
    let done = regenerate(&target, &conversations, &out, &config).unwrap();
    assert_eq!(done, Regenerated { answers: 3, too_long: 1 });
    assert_eq!(regenerate(&target, &conversations, &out, &config).unwrap().answers, 0);

    for conversation in training::read(&out).unwrap() {
        let answer = conversation.answer_ids.clone().expect("the target's ids");
        let example = Example::encode(&conversation, &target).unwrap();
        let asked = example.ids.len() - answer.len();
        assert_eq!(example.ids[asked..], answer);
        assert!(example.assistant[asked..].iter().all(|said| *said) && !example.assistant[..asked].contains(&true));

        // The greedy answer is what the target says after every row before it, image rows included.
        let (sequence, cache) = Sequence::run(target.model.as_ref(), &[2, 4, 5], &example).unwrap();
        assert_eq!((sequence.argmax, cache.len()), (answer, example.ids.len()));
        assert_eq!(sequence.image.iter().filter(|image| image.is_some()).count(), 25);
    }
}

#[test]
fn a_rendered_answer_trains_with_its_end_and_damage_is_found_at_once() {
    let (target, dir) = (target(), tempfile::tempdir().unwrap());
    let conversation = about_chart(dir.path(), 1);
    let example = Example::encode(&conversation, &target).unwrap();
    let said: Vec<u32> =
        example.ids.iter().zip(&example.assistant).filter(|(_, said)| **said).map(|(id, _)| *id).collect();
    assert_eq!(target.tokenizer.decode(&said).unwrap().trim(), "old");
    assert_eq!(said.last(), Some(&2), "the end of the turn is learnt too");
    std::fs::write(dir.path().join("1.png"), "no picture").unwrap();
    let message = Example::encode(&conversation, &target).unwrap_err().to_string();
    assert!(message.contains("1.png"), "{message}");
}
