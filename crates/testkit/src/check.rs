//! Runs random operations against a cache and judges every answer.

use crate::generator::{Generator, GeneratorOptions, Step};
use crate::model::Model;
use crate::operation::{Answer, Hit, Mode, Operation};
use std::collections::{HashMap, VecDeque};

/// A cache under test.
pub trait Subject {
    /// Carries an operation out at this time.
    fn apply(&mut self, operation: &Operation, now_ms: u64) -> Answer;

    /// Asserts all invariants.
    fn verify(&mut self, now_ms: u64);
}

/// Number of past steps that a failure prints.
const REMEMBERED_STEPS: usize = 12;

/// Runs `steps` random operations, then reads every key once more. `evicts`: whether a stored key may miss.
///
/// # Panics
/// At the first wrong answer, with the seed and the last operations.
pub fn check(subject: &mut impl Subject, seed: u64, options: GeneratorOptions, evicts: bool, steps: usize) {
    let mut generator = Generator::new(seed, options.clone());
    let mut model = Model::new(evicts, options.value_limit);
    let mut tokens = HashMap::new();
    let mut past = VecDeque::new();
    let keys = generator.keys().to_vec();
    let mut now_ms = 0;
    let last = |now_ms| Step { now_ms, operation: Operation::GetBatch(keys.clone()) };
    for number in 0..=steps {
        let Step { now_ms: now, mut operation } = if number < steps { generator.step() } else { last(now_ms) };
        now_ms = now_ms.max(now);
        let token_version = use_token(&mut operation, &tokens);
        let answer = subject.apply(&operation, now);
        model.observe_time(now);
        let judgement = model.judge(&operation, &answer, token_version);
        past.push_back(format!("{now:>10} ms  {operation:?} -> {answer:?}"));
        if past.len() > REMEMBERED_STEPS {
            past.pop_front();
        }
        if let Err(why) = judgement {
            let past = past.make_contiguous().join("\n");
            panic!("seed {seed}, step {number}: {why}\n{past}\n{options:?}");
        }
        remember_tokens(&operation, &answer, &model, &mut tokens);
        if number % (steps / 4 + 1) == steps / 4 {
            subject.verify(now_ms);
        }
    }
    subject.verify(now_ms);
}

type Tokens = HashMap<Vec<u8>, (u64, Option<u64>)>;

/// Gives a cas the last token that was seen of its key. Answers the version of the value that had it.
fn use_token(operation: &mut Operation, tokens: &Tokens) -> Option<u64> {
    let Operation::Write(write) = operation else { return None };
    let Mode::Cas(token) = &mut write.mode else { return None };
    let (seen, version) = tokens.get(&write.key).copied().unwrap_or((u64::MAX, None));
    *token = seen;
    version
}

fn remember_tokens(operation: &Operation, answer: &Answer, model: &Model, tokens: &mut Tokens) {
    let mut remember = |key: &Vec<u8>, hit: &Hit| {
        tokens.insert(key.clone(), (hit.token, model.version(key)));
    };
    match (operation, answer) {
        (Operation::Get(key), Answer::Lookup(Some(hit))) => remember(key, hit),
        (Operation::GetBatch(keys), Answer::Lookups(hits)) => {
            keys.iter().zip(hits).filter_map(|(key, hit)| Some((key, hit.as_ref()?))).for_each(|(k, h)| remember(k, h));
        }
        _ => {}
    }
}
