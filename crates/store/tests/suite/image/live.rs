//! Images of a store that continues.

use super::*;

#[test]
fn a_store_and_its_image_always_agree() {
    for (number, policy) in [Policy::S3Fifo, Policy::Merge, Policy::Lru].into_iter().enumerate() {
        let mut random = Random::new(100 + number as u64);
        let options = Options { memory_bytes: 2 << 20, memory_bytes_max: None, ..options(policy) };
        let store = Arc::new(Store::new(options).unwrap());
        let participant = store.participate();
        let mut now_ms = START_MS;
        for round in 0..120 {
            // Some images are of neighbours in time, others have many operations between them.
            let steps = if round % 3 == 0 { 600 } else { 1 };
            now_ms = churn(&store, &participant, &mut random, now_ms, steps);
            if round == 90 {
                assert!(store.stats().evictions > 100, "{:?}", store.stats());
                store.flush(now_ms, 0);
            }
            let (loaded, told) = load(policy, &image(&store, &participant, now_ms)).unwrap();
            let loaded = Arc::new(loaded);
            let reader = loaded.participate();
            loaded.verify(&reader, now_ms);
            store.verify(&participant, now_ms);
            let (theirs, ours) = (entries(&loaded, &reader, now_ms), entries(&store, &participant, now_ms));
            assert!(theirs == ours, "{policy:?}, round {round}");
            assert_eq!((told.now_ms, loaded.stats().items), (now_ms, store.stats().items));
        }
    }
}

#[test]
fn an_image_without_demotions_is_loaded() {
    let store = Arc::new(Store::new(options(Policy::S3Fifo)).unwrap());
    let participant = store.participate();
    let now_ms = churn(&store, &participant, &mut Random::new(8), START_MS, 20_000);
    let (loaded, _) = load(Policy::S3Fifo, &of_format_8(image(&store, &participant, now_ms))).unwrap();
    let loaded = Arc::new(loaded);
    let reader = loaded.participate();
    loaded.verify(&reader, now_ms);
    assert!(entries(&loaded, &reader, now_ms) == entries(&store, &participant, now_ms));
    let (old, new) = (store.stats(), loaded.stats());
    assert!(old.segments_compacted > 0, "the counter before the one that is missing: {old:?}");
    assert_eq!(
        (new.evictions, new.stored_total, new.segments_compacted, new.demotions),
        (old.evictions, old.stored_total, old.segments_compacted, 0)
    );
}
